"""What the command line asks of one job, and how its ranks meet over torch.distributed."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fleet.machine.devices import ON_DEVICES
from fleet.machine.horovod import HorovodMissing, check_horovod
from fleet.machine.launch.launched import launch_folder
from fleet.spec.semantics import DEVICES
from preprocess.files.writing import make_folder

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.messages.torch_backend import TorchTransport


_LEVELS = ("D0", "D1", "D2", "D0+D2", "D1+D2")
TRANSPORTS = ("mpi", "torch", "device", "horovod")


class TrainError(ValueError):
    """The options cannot be followed; the text says the value, the rule and the mend."""


@dataclass(frozen=True)
class TrainOptions:
    """One job's options, as `fleet train` and `fleet trace-tensors` take them.

    Attributes:
        task: module:Name of the task's class.
        virtual_workers: virtual workers of the job.
        trainers: processes; None for as many as there are devices, at most `virtual_workers`.
        steps: how many the job shall have done at the end, counted from its first.
        checkpoint: where the job's state goes; None to keep none.
        resume: the checkpoint to go on from.
        level: level of determinism.
        ddp: train under stock DDP instead.
        reduce: "mpi" or "torch", what carries gradients between trainers; "device", to add them there; or "horovod".
        threads: threads of each process's CPU arithmetic.
        device: "auto", "cpu" or a kind of accelerator, such as "cuda".
        instruction_set: what CPU kernels are limited to at D2.
        trace: where hashes of all tensors go; None to record none.
        matmul, convolutions: in what GPUs multiply float32, "ieee" or "tf32".
        made_with: the keyword arguments with which the task's class is made.
        command: the words that begin the ranks' command line; () for those of the command that takes a task.
    """

    task: str
    virtual_workers: int
    steps: int
    trainers: int | None = None
    checkpoint: Path | None = None
    resume: Path | None = None
    level: str = "D1"
    ddp: bool = False
    reduce: str = "mpi"
    threads: int = 1
    device: str = "auto"
    instruction_set: str = "avx2"
    trace: Path | None = None
    matmul: str = "ieee"
    convolutions: str = "tf32"
    made_with: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    def check(self) -> None:
        """Check what can be checked without the task.

        Raises:
            TrainError: the first thing that is wrong.
        """
        for name in ("virtual_workers", "steps", "trainers", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise TrainError(f"--{name.replace('_', '-')} {value}: give at least 1")
        _choose("--determinism", self.level, _LEVELS)
        _choose("--reduce", self.reduce, TRANSPORTS)
        _choose("--device", self.device, DEVICES)
        for name, value in self.float32.items():
            _choose(f"--{name}", value, ("ieee", "tf32"))
        if self.reduce == "device" and self.device == "cpu":
            raise TrainError(ON_DEVICES.format(why="--device is cpu"))
        if self.reduce == "horovod":
            self._check_horovod()
        if self.trainers is not None and self.trainers > self.virtual_workers:
            raise TrainError(too_many_trainers(self.trainers, self.virtual_workers))
        if self.ddp:
            self._check_ddp()
        if self.resume is not None and not self.resume.is_file():
            raise TrainError(f"--resume {self.resume}: there is no such file; give a checkpoint that was written")
        for option, path in (("--checkpoint", self.checkpoint), ("--out", self.trace)):
            if path is not None:
                _check_target(option, path)

    def arguments(self, trainers: int) -> list[str]:
        """The command line that says the same to each rank, with the number of trainers settled."""
        if self.command:
            return [*self.command, "--trainers", str(trainers), "--checkpoint", str(self.checkpoint)]
        words = ["train" if self.trace is None else "trace-tensors", self.task]
        words += ["--virtual-workers", str(self.virtual_workers), "--steps", str(self.steps)]
        words += ["--trainers", str(trainers), "--determinism", self.level, "--reduce", self.reduce]
        words += ["--threads", str(self.threads), "--device", self.device, "--instruction-set", self.instruction_set]
        words += [word for name, value in self.float32.items() for word in (f"--{name}", value)]
        for option, path in (("--checkpoint", self.checkpoint), ("--resume", self.resume), ("--out", self.trace)):
            words += [option, str(path)] if path is not None else []
        return words

    @property
    def float32(self) -> dict[str, str]:
        """`matmul` and `convolutions`, as `trainers.Float32` takes them."""
        return {"matmul": self.matmul, "convolutions": self.convolutions}

    def trace_header(self) -> dict[str, Any]:
        """Return what a trace says of its job; the number of trainers is not among it."""
        return {"task": self.task, "virtual_workers": self.virtual_workers, "steps": self.steps}

    def _check_horovod(self) -> None:
        if self.ddp:
            raise TrainError("--ddp --reduce horovod: stock DDP adds gradients itself, over gloo; leave one out")
        if inside_torchrun():
            raise TrainError(
                "--reduce horovod: Horovod meets over MPI, and torchrun started this process; start it with mpirun or "
                "srun, or on one machine without either"
            )
        try:
            check_horovod()
        except HorovodMissing as error:
            raise TrainError(str(error)) from error

    def _check_ddp(self) -> None:
        if self.resume is not None:
            raise TrainError(
                f"--ddp --resume {self.resume}: stock DDP lays its buckets out anew after a restart, so its bits would "
                "not be those of an uninterrupted run; train with --ddp from the first step"
            )
        if self.trainers not in (None, self.virtual_workers):
            raise TrainError(
                f"--ddp --trainers {self.trainers}: stock DDP has one process for each of the {self.virtual_workers} "
                "workers; leave --trainers out"
            )


def too_many_trainers(trainers: int, virtual_workers: int) -> str:
    """The error's text for trainers that would have no virtual worker."""
    return (
        f"{trainers} trainers are more than the {virtual_workers} virtual workers: {trainers - virtual_workers} could "
        f"never work; start at most {virtual_workers} trainers. More virtual workers would make another job of it"
    )


def _choose(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise TrainError(f"{option} {value}: choose one of {', '.join(choices)}")


def _check_target(option: str, path: Path) -> None:
    """A run of hours should not end in a path that never could be written."""
    if path.is_dir():
        raise TrainError(f"{option} {path}: this is a folder; give the path of a file, such as {path / 'net.h5'}")
    try:
        make_folder(path.parent)
    except OSError as error:
        raise TrainError(f"{option} {path}: {path.parent} cannot be made: {error.strerror}; choose another") from error


_TIMEOUT_SECONDS = 300.0
_TORCHRUN = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def inside_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether torchrun started this process."""
    return all(name in environment for name in _TORCHRUN)


def torchrun_place(environment: Mapping[str, str] = os.environ) -> tuple[int, int, int]:
    """This process's rank, how many there are, and its place on its node."""
    rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    return rank, size, int(environment.get("LOCAL_RANK", rank))


def transport_of_torchrun() -> TorchTransport:
    """Between all of torchrun's processes."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=_TIMEOUT_SECONDS))
    return _transport()


def transport_of_world(world: MPI.Intracomm, on_one_node: bool) -> TorchTransport:
    """Between all ranks of `world`; MPI only tells them where they meet.

    On one node that is a file in a folder of this user alone, and messages go over the loopback interface. On several
    it is a port on the interface of rank 0's host name, for which torch knows no secret.
    """
    import torch.distributed as dist

    from trainers.messages.torch_backend import joined_store, listening_store, on_loopback

    store, where, told = None, "", np.zeros(4096, dtype=np.uint8)
    if on_one_node:
        os.environ.update(on_loopback())
        where = _own_folder() if world.rank == 0 else ""
    elif world.rank == 0:
        store, where = listening_store(False, _TIMEOUT_SECONDS)
    told[: len(where.encode())] = np.frombuffer(where.encode(), dtype=np.uint8)
    world.Bcast(told, 0)
    where = told.tobytes().rstrip(b"\0").decode()
    if on_one_node:
        store = dist.FileStore(str(Path(where, "store")), world.size)  # type: ignore[attr-defined]
    elif store is None:
        store = joined_store(where, _TIMEOUT_SECONDS)
    timeout = timedelta(seconds=_TIMEOUT_SECONDS)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=timeout)
    return _transport()


def _own_folder() -> str:
    """A folder that only this user can look into, which goes at the end: that of our own launch, or a new one."""
    for folder in launch_folder():
        return str(folder)
    made = tempfile.mkdtemp(prefix="fleet-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _transport() -> TorchTransport:
    from trainers.messages.torch_backend import TorchTransport

    return TorchTransport(timeout=_TIMEOUT_SECONDS)
