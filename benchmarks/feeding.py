"""Several networks of one node fed with the same samples: by one service, by a DataLoader each, by TensorSocket.

Each network is a process: `python -m benchmarks.feeding WAY ARGUMENTS`; it reads an epoch when it is told to. What is
counted is the processor time of all processes involved, between the first and the last batch of an epoch, start-up
left out. No network looks at the pixels, whoever feeds it; token ids come as int64, as an embedding takes them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from benchmarks.pictures import pictures
from benchmarks.text import Text, text

__all__ = ["WAYS", "WAYS_OF_TEXT", "Cost", "Networks", "NoAnswer", "networks", "answer", "cpu_of", "tell", "ways_here"]

BATCH = 64
ANSWER_SECONDS = 240
WAYS = ("shared", "loaders", "tensorsocket")
WAYS_OF_TEXT = ("shared", "loaders", "loaders without workers")
TENSORSOCKET_PORTS = (7755, 7756)


class NoAnswer(RuntimeError):
    """A way of feeding got stuck or failed."""


@dataclass(frozen=True)
class Cost:
    """What one epoch cost.

    Attributes:
        cpu: processor seconds of a sample for a network, over all processes.
        wall: seconds of the epoch.
        images: how many samples reached every network.
    """

    cpu: float
    wall: float
    images: int


def ways_here() -> list[str]:
    """The ways that can be measured here."""
    return [way for way in WAYS if way != "tensorsocket" or find_spec("tensorsocket")]


class Networks:
    """K processes that read the same data in one of the ways, for several epochs.

    Args:
        way: one of WAYS, or of WAYS_OF_TEXT.
        count: K.
        data: the file of pictures, or of token ids if it is an .npy file.
    """

    def __init__(self, way: str, count: int, data: Path) -> None:
        arguments = {"data": str(data), "networks": count, "name": f"{data.stem}-{way}-{count}-{time.time_ns()}"}
        roles = ["network"] * count + (["producer"] if way == "tensorsocket" else [])
        self._processes = [_start(way, role, {**arguments, "number": place}) for place, role in enumerate(roles)]
        self._networks = self._processes[:count]

    def epoch(self) -> Cost:
        """Let all read one epoch."""
        before, begin = self._cpu_seconds(), time.perf_counter()
        for process in self._processes:
            tell(process, "epoch")
        read = [answer(process) for process in self._processes][: len(self._networks)]
        wall = time.perf_counter() - begin
        cpu = self._cpu_seconds() - before
        return Cost(cpu / max(sum(read), 1), wall, min(read))

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _cpu_seconds(self) -> float:
        """Processor seconds that the processes, their children and the service they started have used."""
        return sum(cpu_of(process) for process in self._everybody())

    def _everybody(self) -> Iterator[psutil.Process]:
        for process in self._processes:
            root = psutil.Process(process.pid)
            yield root
            yield from root.children(recursive=True)
        for other in psutil.process_iter(["cmdline"]):
            if "preprocess.sharing" in (other.info["cmdline"] or ()):
                yield other


@contextmanager
def networks(way: str, count: int, data: Path) -> Iterator[Networks]:
    """Start K networks, and end them."""
    running = Networks(way, count, data)
    try:
        running.epoch()  # what only the first epoch costs
        yield running
    finally:
        running.close()


def _start(way: str, role: str, arguments: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.feeding", way, role, json.dumps(arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def tell(process: subprocess.Popen[str], word: str) -> None:
    """Tell a process something."""
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> int:
    """Return how many images a process has read, past whatever else it prints."""
    assert process.stdout is not None
    watchdog = threading.Timer(ANSWER_SECONDS, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if line.startswith("images "):
                return int(line.split()[1])
    finally:
        watchdog.cancel()
    raise NoAnswer(f"a process did not read an epoch within {ANSWER_SECONDS} s, or ended; see its messages above")


def cpu_of(process: psutil.Process) -> float:
    """Processor seconds of a process; 0 if it has gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _batches(way: str, role: str, arguments: dict[str, Any]) -> Any:
    """Something that gives an epoch's batches each time it is iterated over."""
    data = Path(arguments["data"])
    if data.suffix == ".npy":
        return _batches_of_text(way, data, arguments)
    spec = pictures(data)
    if way == "shared":
        from preprocess import SharedLoader

        return SharedLoader(
            spec,
            BATCH,
            readers=arguments["networks"],
            name=arguments["name"],
            prepare=lambda images, targets: (targets.clone(),),
        )
    if way == "loaders":
        return _data_loader(spec)
    if role == "producer":
        from tensorsocket import TensorProducer

        return TensorProducer(_data_loader(spec), *TENSORSOCKET_PORTS, producer_batch_size=2)
    from tensorsocket import TensorConsumer

    return TensorConsumer(*TENSORSOCKET_PORTS, batch_size=BATCH)


def _batches_of_text(way: str, data: Path, arguments: dict[str, Any]) -> Any:
    if way == "shared":
        from preprocess import SharedLoader

        return SharedLoader(
            text(data),
            BATCH,
            readers=arguments["networks"],
            name=arguments["name"],
            prepare=lambda ids, targets: (ids.long(), targets.long()),
        )
    import torch

    samples: Any = Text(data)
    has_worker = way == "loaders"
    return torch.utils.data.DataLoader(
        samples, BATCH, shuffle=True, num_workers=int(has_worker), persistent_workers=has_worker
    )


def _data_loader(spec: Any) -> Any:
    """torch's DataLoader with one worker over the same decoding and the same transforms."""
    import torch

    from preprocess import Dataset
    from preprocess.samples.order import TRAIN

    class Pictures(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.made = Dataset(spec)

        def __len__(self) -> int:
            return self.made.length

        def __getitem__(self, index: int) -> tuple[Any, int]:
            image, target = self.made.layout.empty(1)
            self.made.make(TRAIN, 0, 0, index, image[0], target)
            return torch.from_numpy(image[0]), int(target[0])

    return torch.utils.data.DataLoader(Pictures(), BATCH, shuffle=True, num_workers=1, persistent_workers=True)


def _take_part() -> None:
    """Be one network, or a producer: read an epoch for each line on standard input."""
    way, role, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    import torch

    torch.set_num_threads(1)
    batches = _batches(way, role, arguments)
    for _ in sys.stdin:
        images = sum(BATCH if batch is None else len(batch[0]) for batch in batches)
        print("images", images, flush=True)


if __name__ == "__main__":
    _take_part()
