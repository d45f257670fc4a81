"""One of several processes, each with its device, that add vectors; some keep theirs on the host."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Event
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch_rig
from torch import Tensor

from tests.device.programs.mutants import changed
from trainers import Group
from trainers.messages import torch_backend
from trainers.messages.group import blocks_of
from trainers.messages.torch_backend import DeviceChannel, TorchTransport
from trainers.reduce import device_reduce
from trainers.reduce.device_reduce import Communicators
from trainers.reduce.ordered_reduce import OrderedReduce

SECONDS, BUCKETS, ELEMENTS = 60, 3, 5000


def right(
    rank: int, size: int, folder: str, schedule: str, workers: int, hosts: list[int], mutant: list[str] | None = None
) -> bool:
    """Add buckets twice; return whether the sums are those of the ring. hosts: the members that keep theirs there."""
    torch_rig.schedule(schedule)
    device = torch.device("rig", rank)
    torch.accelerator.set_device_index(rank)
    if mutant:
        changed(*mutant)
    vars(device_reduce)["_BAND"] = 4 * ELEMENTS // 3  # a few to a bucket
    dist.init_process_group(
        "cpu:gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=SECONDS)
    )
    group = Group.over(TorchTransport(timeout=SECONDS))
    reducer: Any = device_reduce.DeviceReduce(group, workers, device, Communicators())
    meetings = _devices_of_meetings(held=mutant is not None and "met()" in mutant[1])
    reducer.start()
    on_own = _streams_of(reducer._channel, device)
    wrong = 0
    for step in range(2):
        made = [_drawn(workers, 100 * step + bucket) for bucket in range(BUCKETS)]
        shared = reducer.share([torch.full((count,), rank * 1.0, device=device) * 1 for count in (3, 70)])
        wrong += sum(bool((tensor.cpu() != 0).any()) for tensor in shared)
        brought = [torch.full((6, 70), rank * 1.0, device=device) * 1, (torch.ones(5, 3, device=device) * rank).t()]
        reducer.receive([*brought, torch.empty(0, device=device)], size - 1)
        wrong += sum(bool((tensor.cpu() != size - 1).any()) for tensor in brought)
        own = [[_placed(vectors[w], rank in hosts, device) for w in blocks_of(workers, size)[rank]] for vectors in made]
        sums = _in_a_thread(partial(list, map(reducer.sum, own)), meetings)
        ahead = reducer.share_ahead([tensor.clone() for tensor in _of_many_types(rank, device)])
        follows = reducer.follow()
        wrong += follows is (rank in hosts)
        used = [total * 1 for total in sums] if follows else []  # asked for before they are there
        reducer.complete()
        wrong += sum(not torch.equal(got.cpu(), _in_order(vectors)) for got, vectors in zip(sums, made))
        wrong += sum(not torch.equal(got.cpu(), _in_order(vectors)) for got, vectors in zip(used, made))
        masters = _of_many_types(0, torch.device("cpu"))
        wrong += sum(not torch.equal(got.cpu(), wanted) for got, wanted in zip(ahead, masters))
        wrong += [tensor.dtype for tensor in ahead] != [tensor.dtype for tensor in masters]
    reducer.stop(True)
    torch.accelerator.synchronize()
    dist.barrier()  # who has not waited does not leave before its messages are over
    return wrong == 0 and not any(on_own) and set(meetings) == {rank}


def _in_a_thread(work: Callable[[], list[Tensor]], devices: list[int]) -> list[Tensor]:
    """As sums are taken whose vectors lie on the host: it has selected no device. devices: gets its one afterwards."""
    with ThreadPoolExecutor(1) as pool:
        sums = pool.submit(work).result()
        devices.append(pool.submit(torch.accelerator.current_device_index).result())
    return sums


def _devices_of_meetings(held: bool) -> list[int]:
    """From now on, the devices of the threads in which communicators are made. held: each until its member waits."""
    made, found, awaited = vars(torch_backend)["_communicator"], list[int](), Event()
    met = DeviceChannel.connected

    def noted(*arguments: Any) -> Any:
        found.append(torch.accelerator.current_device_index())
        if held:
            awaited.wait(SECONDS)
        return made(*arguments)

    def waits(channel: DeviceChannel) -> None:
        awaited.set()
        met(channel)

    vars(torch_backend)["_communicator"] = noted
    patch.object(DeviceChannel, "connected", waits).start()
    return found


def _streams_of(channel: Any, device: torch.device) -> list[bool]:
    """From now on, for each message, whether it stands in the device's own stream."""
    found: list[bool] = []

    def noted(begin: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            found.append(torch.accelerator.current_stream(device) == torch_rig.device_module.default_stream(device))
            begin(*arguments)

        return call

    channel.exchange, channel.broadcast = noted(channel.exchange), noted(channel.broadcast)
    return found


def _of_many_types(rank: int, device: torch.device) -> list[Tensor]:
    """As buffers are: statistics, a counter, a mask."""
    shapes: list[tuple[tuple[int, ...], torch.dtype]] = [((3,), torch.float16), ((), torch.int64), ((2, 5), torch.bool)]
    shapes += [((7,), torch.float32), ((0,), torch.float32), ((4, 1), torch.float64)]
    return [torch.full(shape, rank + 1, dtype=dtype, device=device) for shape, dtype in shapes]


def _drawn(workers: int, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(ELEMENTS, generator=generator) * 10.0 ** (worker % 5) for worker in range(workers)]


def _placed(vector: Tensor, on_host: bool, device: torch.device) -> Tensor:
    return vector.pin_memory() if on_host else vector.to(device) * 1.0


def _in_order(vectors: list[Tensor]) -> Tensor:
    return OrderedReduce(Group.alone(), len(vectors), torch.device("cpu")).sum([vector.clone() for vector in vectors])
