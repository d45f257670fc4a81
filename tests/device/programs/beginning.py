"""One of several processes that begin to train while their devices still meet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch_rig

from tests.device.programs import stepping
from tests.device.programs.mutants import changed
from trainers import Group, Trainer
from trainers.messages import torch_backend
from trainers.messages.torch_backend import DeviceChannel, TorchTransport
from trainers.messages.transport import PeerFailed, PeerSilent
from trainers.reduce.device_reduce import Communicators, DeviceReducers

SECONDS = 60


def by_both_ways(rank: int, size: int, folder: str, schedule: str, before: int, after: int) -> list[Any]:
    """Take steps before the devices have met, and after; tell of each what `_counted` tells.

    Last comes whether the weights are those of one process on a CPU.
    """
    _begin(rank, size, folder, SECONDS, schedule)
    kept, told = Communicators(), list[Any]()
    with _held() as released:
        trainer = _trainer(rank, size, kept, SECONDS)
        with trainer.reducing(at_once=True):
            for step in range(before + after):
                if step == before - 1:
                    released.set()
                    _wait_until_met(trainer)
                told.append(_counted(trainer, step))
            trainer.group.barrier()
    wanted = Trainer(stepping.Task("perceptron"), size, Group.alone(), "cpu")
    for step in range(len(told)):
        _step(wanted, step)
    dist.barrier()
    return [*told, all(map(torch.equal, _weights(trainer), _weights(wanted)))]


def left_before(rank: int, size: int, folder: str) -> list[bool]:
    """Leave a group while its devices meet, and form it again; tell whether they met still."""
    _begin(rank, size, folder, SECONDS, "both-late")
    kept, told = Communicators(), list[bool]()
    with _held(until_waits=True):
        for _ in range(2):
            trainer = _trainer(rank, size, kept, SECONDS)
            with trainer.reducing(at_once=True):
                told.append(trainer.is_connecting)
                _step(trainer, 0)
                told.append(trainer.is_connecting)
    dist.barrier()
    return told


def while_one_is_silent(rank: int, size: int, folder: str, seconds: float, mutant: list[str] | None = None) -> bool:
    """Let the last member's device send nothing; tell whether the others' go on until then, within so many seconds.

    A member that is lost sends nothing either, and then the others' steps over hosts must hear of it.
    """
    _begin(rank, size, folder, SECONDS, "prompt")
    if mutant:
        changed(*mutant)
    device, stands, done, begin = torch.device("rig", rank), Event(), Event(), vars(DeviceChannel)["_begun"]
    is_last = rank == size - 1

    def begun(channel: DeviceChannel, calls: Any) -> list[Any]:
        if is_last:
            stands.wait(SECONDS)
        works: list[Any] = begin(channel, calls)
        for work in works:
            work.wait()  # without a limit, the stream alone waits
        stands.set()
        return works

    def use() -> None:
        torch.accelerator.set_device_index(rank)
        (torch.ones(3, device=device) * 1).cpu()
        done.set()

    with patch.object(DeviceChannel, "_begun", begun):
        trainer = _trainer(rank, size, Communicators(), SECONDS)
        with trainer.reducing(at_once=True):
            if not is_last:
                stands.wait(SECONDS)
                Thread(target=use, daemon=True).start()
                done.wait(seconds)
            goes_on = is_last or done.is_set()
            dist.barrier()
            stands.set()
    dist.barrier()
    return goes_on


def without(rank: int, size: int, folder: str, how: str) -> str:
    """Train until the devices should have met, and did not; tell how that ends. how: "never" or "broken"."""
    _begin(rank, size, folder, 2, "prompt")
    is_last = rank == size - 1
    is_broken = is_last and how == "broken"
    with _held(ArithmeticError("no room for rings") if is_broken else None) as released:
        if not is_last:
            released.set()
        communicators = Communicators()
        trainer = _trainer(rank, size, communicators, 2)
        try:
            with trainer.reducing(at_once=True):
                if is_broken:
                    released.set()
                until = time.monotonic() + SECONDS
                while time.monotonic() < until:
                    _step(trainer, 0)
        except (PeerFailed, PeerSilent, ArithmeticError) as error:
            if isinstance(error, ArithmeticError):
                trainer.group.abort(str(error))
            return f"{type(error).__name__}: {error}"
        finally:
            released.set()
            communicators.end()
    return "it went on for ever"


def _begin(rank: int, size: int, folder: str, seconds: float, schedule: str) -> None:
    torch_rig.schedule(schedule)
    torch.accelerator.set_device_index(rank)
    store = f"file://{folder}/store"
    dist.init_process_group(
        "cpu:gloo", init_method=store, rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )


@contextmanager
def _held(error: Exception | None = None, until_waits: bool = False) -> Iterator[Event]:
    """Let devices begin to meet once the event is set. error: instead. until_waits: also once a member waits."""
    released, made = Event(), vars(torch_backend)["_communicator"]
    met = DeviceChannel.connected

    def held(*arguments: Any) -> Any:
        released.wait(SECONDS)
        if error is not None:
            raise error
        return made(*arguments)

    def waits(channel: DeviceChannel) -> None:
        if until_waits:
            released.set()
        met(channel)

    with patch.object(torch_backend, "_communicator", held), patch.object(DeviceChannel, "connected", waits):
        yield released


def _trainer(rank: int, size: int, kept: Communicators, seconds: float) -> Trainer:
    group = Group.over(TorchTransport(timeout=seconds))
    return Trainer(stepping.Task("perceptron"), size, group, torch.device("rig", rank), reducer=DeviceReducers(kept))


def _wait_until_met(trainer: Any) -> None:
    """Have the devices of all members met; nobody has been told yet."""
    trainer._reducer._devices._channel._meeting.join(SECONDS)
    trainer.group.barrier()


def _step(trainer: Any, step: int) -> None:
    trainer.step([stepping.batch(10 * step + worker.rank) for worker in trainer.workers])


def _counted(trainer: Any, step: int) -> list[bool]:
    """Take a step; tell whether devices met as it began, and whether its gradients went to the host, and to devices."""
    met = trainer.is_connecting
    torch_rig.counts()
    _step(trainer, step)
    trainer.settle()
    gradients = sum(parameter.numel() * parameter.element_size() for parameter in trainer.model.parameters())
    counts = torch_rig.counts()
    return [met, counts.get("d2h bytes", 0) >= gradients, counts.get("bytes sent", 0) >= gradients]


def _weights(trainer: Any) -> list[torch.Tensor]:
    return [tensor.detach().cpu() for tensor in trainer.model.parameters()]
