"""Starts the yardstick's processes, one a rank, and sees them to their end; see `trainers.proof.ddp`.

They meet over a file in a temporary folder, so no port is chosen, and talk over loopback. A process whose standard
input ends knows that its parent is gone, and ends. What they made comes back in files of that folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from preprocess.files.modules import import_named, importable, let_forks_end, python
from preprocess.files.reading import open_file, read_json
from preprocess.files.writing import open_to_append, whole_file
from trainers.job.single_job import EpochDone, News, StepsDone
from trainers.messages.torch_backend import on_loopback
from trainers.proof.ddp import DdpRank, assemble
from trainers.proof.ddp_parts import DdpRankOfParts
from trainers.proof.tensor_trace import Recorder, TensorHash, TraceFile, merged_traces, read_tensor_trace
from trainers.repeatable import determinism
from trainers.repeatable.process_settings import settings_kept
from trainers.repeatable.single_precision import Float32
from trainers.state.checkpoint import Checkpoint
from trainers.state.tree import decode, encode
from trainers.task.parts import is_parted
from trainers.task.task import made_task

_POLL_SECONDS = 0.05
_END_SECONDS = 10.0
_KILLED_SECONDS = 60.0


@dataclass(frozen=True)
class RaisedError:
    """An error that a process of the job raised, as another process can tell of it.

    kind: of its class, the name. text: what it says. said: both, as Python prints them. stack: file, line number,
    function and line of each call, from the outermost to the innermost.
    """

    kind: str
    text: str
    said: str
    stack: Sequence[tuple[str, int | None, str, str | None]]

    @classmethod
    def of(cls, error: BaseException) -> RaisedError:
        """Tell of an error that is being handled."""
        said = "".join(traceback.format_exception_only(error)).rstrip()
        calls = traceback.extract_tb(error.__traceback__)
        stack = [(call.filename, call.lineno, call.name, call.line) for call in calls]
        return cls(type(error).__name__, str(error), said, stack)

    def lines(self) -> list[traceback.FrameSummary]:
        """Return the calls as Python's traceback has them."""
        return [traceback.FrameSummary(file, number, name, line=line) for file, number, name, line in self.stack]


class ProcessFailed(RuntimeError):
    """A process of the job failed. rank: which one; raised: the error that it raised; None where it just ended."""

    def __init__(self, rank: int, text: str, raised: RaisedError | None = None) -> None:
        super().__init__(f"rank {rank} of the DDP job {text}")
        self.rank, self.raised = rank, raised


class Stopped(Exception):
    """The job was asked to stop. Stock DDP cannot go on with the same bits, so nothing is kept."""


@dataclass(frozen=True)
class DdpJob:
    """The orders of the processes.

    task: module:Name of the task's class. arguments: the keyword arguments with which it is made. ranks: processes.
    steps: how many to train. device: "cpu", or a kind of accelerator, on which ranks take turns. threads: CPU threads
    of each process. level: the level of determinism. float32: in what GPUs multiply float32, the keyword arguments of
    `Float32`. traced: whether to record hashes of all tensors. timeout: seconds that a rank waits for the others in
    any one step.
    """

    task: str
    ranks: int
    steps: int
    device: str = "cpu"
    threads: int = 1
    level: str = "D1"
    traced: bool = False
    timeout: float = 1800.0
    float32: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


def train_with_ddp(
    job: DdpJob,
    tell: Callable[[News], None] = lambda _: None,
    is_asked_to_stop: Callable[[], bool] = lambda: False,
    trace: Callable[[Iterator[TensorHash]], None] = lambda _: None,
) -> Checkpoint:
    """Train a task under stock DDP in processes of its own; return the job's state after its last step.

    The job is done as soon as every rank has left its state: a process that then hangs while it ends, as gloo's
    connections may, is killed. trace: takes the events if the job is traced. ProcessFailed, with all processes ended;
    Stopped.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-ddp-") as name:
        folder = Path(name)
        processes = _Processes(job, folder)
        try:
            processes.watch(_NewsReader(folder / "news", tell), is_asked_to_stop)
            processes.let_end()
        finally:
            processes.end()
        if job.traced:
            trace(merged_traces([read_tensor_trace(_file(folder, rank, "trace")) for rank in range(job.ranks)]))
        return assemble([decode(_content(_file(folder, rank, "state"))) for rank in range(job.ranks)])


class _Processes:
    """The processes of one job."""

    def __init__(self, job: DdpJob, folder: Path) -> None:
        self._folder = folder
        command = python("-m", "trainers.proof.ddp_processes", json.dumps(asdict(job)), str(folder))
        environment = {**os.environ, **on_loopback(), "PYTHONUNBUFFERED": "1"}
        self._processes = [
            subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, env=environment, start_new_session=True)
            for rank in range(job.ranks)
        ]

    def watch(self, look_for_news: Callable[[], None], is_asked_to_stop: Callable[[], bool]) -> None:
        """Return once all have left their states. ProcessFailed as soon as one ended without; Stopped."""
        while not all(self._has_state(rank) for rank in range(len(self._processes))):
            self._check()
            look_for_news()
            if is_asked_to_stop():
                raise Stopped
            time.sleep(_POLL_SECONDS)
        look_for_news()

    def let_end(self) -> None:
        """Give those that still run a while to end by themselves."""
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """End those that still run."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(_KILLED_SECONDS)
            if process.stdin is not None:
                process.stdin.close()

    def _check(self) -> None:
        """Raise ProcessFailed for the rank that failed first: the others only lost their connection to it."""
        ended = [rank for rank, process in enumerate(self._processes) if process.poll() is not None]
        failed = [rank for rank in ended if not self._has_state(rank)]
        killed = [rank for rank in failed if (self._processes[rank].returncode or 0) < 0]
        if killed:
            number = -(self._processes[killed[0]].returncode or 0)
            raise ProcessFailed(killed[0], f"was killed by signal {number} ({signal.Signals(number).name})")
        if failed:
            told = [rank for rank in failed if _file(self._folder, rank, "error").exists()]
            if not told:
                code = self._processes[failed[0]].returncode
                raise ProcessFailed(failed[0], f"ended with exit code {code} without a word")
            first = min(told, key=lambda rank: _file(self._folder, rank, "error").stat().st_mtime_ns)
            raised = RaisedError(**read_json(_file(self._folder, first, "error")))
            raise ProcessFailed(first, f"failed: {raised.said}", raised)

    def _has_state(self, rank: int) -> bool:
        return _file(self._folder, rank, "state").exists()


class _NewsReader:
    """Passes on the lines that rank 0 has appended to a file since the last call."""

    def __init__(self, path: Path, tell: Callable[[News], None]) -> None:
        self._path, self._tell, self._read = path, tell, 0

    def __call__(self) -> None:
        if not self._path.exists():
            return
        with open_file(self._path) as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                kind, values = json.loads(line)
                self._tell({"steps": StepsDone, "epoch": EpochDone}[kind](**values))


def _file(folder: Path, rank: int, what: str) -> Path:
    return folder / f"rank-{rank}.{what}"


def _content(path: Path) -> bytes:
    """All of a file: a state is as large as the job that left it."""
    with open_file(path) as file:
        return file.read()


def _put(path: Path, content: bytes) -> None:
    with whole_file(path) as file:
        file.write(content)


# From here on: inside a process.


def main(job: DdpJob, folder: Path, rank: int) -> int:
    """Be rank `rank` of a job; return the exit code."""
    _end_with_parent()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    for number in numbers:
        signal.signal(number, lambda *_: None)  # the parent decides; whatever is started from here takes them itself
    let_forks_end(numbers)
    try:
        _train(job, folder, rank)
    except (Exception, SystemExit) as error:
        _put(_file(folder, rank, "error"), json.dumps(asdict(RaisedError.of(error))).encode())
        return 1
    return 0


def _train(job: DdpJob, folder: Path, rank: int) -> None:
    device = _device(job.device, rank)
    module, _, path = job.task.partition(":")
    with settings_kept(), importable([os.getcwd()]):
        made: Any = import_named(module)
    for part in path.split("."):
        made = getattr(made, part)
    torch.distributed.init_process_group(
        _backend(device),
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=job.ranks,
        timeout=timedelta(seconds=job.timeout),
    )
    task = made_task(made, job.arguments)
    determinism.pin(job.threads, job.level, device, Float32(**job.float32))
    kind = DdpRankOfParts if is_parted(task) else DdpRank
    trained = kind(task, rank, job.ranks, device, lambda news: _append_news(folder / "news", news))
    if job.traced:
        recorder = Recorder(trained.model, trained.optimizer)
        trace = TraceFile(_file(folder, rank, "trace"))
        trained.train(job.steps, recorder, lambda: trace.add(recorder.take()))
        trace.close()
    else:
        trained.train(job.steps)
    _put(_file(folder, rank, "state"), encode(trained.as_tree()))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _backend(device: torch.device) -> str:
    """gloo, where it takes the device's tensors; else what torch has for devices of this kind, one a process."""
    made: Any = torch.distributed
    if device.type in made.Backend.backend_capability["gloo"]:
        return "gloo"
    return f"cpu:gloo,{device.type}:{made.get_default_backend_for_device(device)}"


def _device(kind: str, rank: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device(kind, rank % torch.get_device_module(kind).device_count())
    torch.get_device_module(device).set_device(device)
    return device


def _append_news(path: Path, news: News) -> None:
    kind = "epoch" if isinstance(news, EpochDone) else "steps"
    values: Mapping[str, Any] = asdict(news)
    with open_to_append(path) as file:
        file.write(json.dumps([kind, values]).encode() + b"\n")


def _end_with_parent() -> None:
    """End this process when its standard input does: the parent holds the other end and writes nothing."""
    source = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a task that reads input finds none

    def wait() -> None:
        os.read(source, 1)
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(DdpJob(**json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])))
