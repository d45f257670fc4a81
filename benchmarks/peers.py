"""Other libraries on the same work: processor time of an image and network beside one stream, and a seed each.

TensorSocket (2024) shares a DataLoader's batches between processes: all networks get the same ones. MosaicML Streaming
and WebDataset read shards, and decode for each network anew. None has a bar: these are figures. A library that is not
installed, fails or stands still gives a message.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import psutil

from benchmarks.feeding import NoAnswer, cpu_of
from benchmarks.peer_networks import PEERS
from benchmarks.peer_packages import ADVICE, peers_python
from benchmarks.pictures import write_pictures

IMAGES, NETWORKS, EPOCHS, SHARDS = 512, 8, 2, 4
SECONDS = 85.0  # for all together; what comes too late is left out
_START_SECONDS, _EPOCH_SECONDS, _END_SECONDS = 30.0, 20.0, 5.0
_SHARED_MEMORY = Path("/dev/shm")
_LEFT_BEHIND = re.compile(r"\d{6}_\w+|torch_\d+_\w+")
_FEWER = "tensorsocket with fewer"  # with 8 consumers it may stand still
_FEWER_NETWORKS = 4
NAMES = {
    "loaders": "a DataLoader each",
    "shared": "one stream for all",
    "seeds": "a seed each",
    "mosaic": PEERS["mosaic"],
    "webdataset": PEERS["webdataset"],
    _FEWER: f"{PEERS['tensorsocket']}, {_FEWER_NETWORKS} networks",
    "tensorsocket": PEERS["tensorsocket"],
}
COLUMNS = ["way", "CPU us an image and network", "images of an epoch", "times one stream's", "times a seed each's"]

Figures = dict[str, Any]


def main(repetitions: int = 0) -> Figures:
    """Measure all ways in turn; returns {"bars": [], "tables": [...], "notes": [...]}."""
    deadline = time.monotonic() + SECONDS * max(repetitions, 1)
    costs: dict[str, list[float]] = {}
    reached: dict[str, int] = {}
    notes: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="peers-") as name, _swept():
        folder = Path(name)
        write_pictures(folder, IMAGES)
        _write_shards(folder, notes)
        for repetition in range(max(repetitions, 1)):
            for way in NAMES:
                if way in notes:
                    continue  # it has failed before, or cannot be tried
                try:
                    cost, reached[way] = _measure(way, folder, repetition, deadline)
                    costs.setdefault(way, []).append(cost)
                except NoAnswer as error:
                    late = time.monotonic() > deadline
                    notes[way] = f"{NAMES[way]}: {'the time for all was over' if late else error}"
    return {"bars": [], "tables": [_table(costs, reached)], "notes": list(notes.values()), "images": IMAGES}


def _write_shards(folder: Path, notes: dict[str, str]) -> None:
    """The pictures in the peers' own formats, where the peers are installed."""
    python = peers_python()
    if python is None:
        notes.update({way: f"{NAMES[way]}: {ADVICE}" for way in NAMES if _library(way)})
        return
    paths = sorted((folder / "pictures").rglob("*.jpg"))
    (folder / "tars").mkdir()
    for shard in range(SHARDS):
        with tarfile.open(folder / "tars" / f"{shard}.tar", "w") as tar:
            for number in range(shard, len(paths), SHARDS):
                for kind, content in (("jpg", paths[number].read_bytes()), ("cls", str(number).encode())):
                    member = tarfile.TarInfo(f"{number:06d}.{kind}")
                    member.size = len(content)
                    tar.addfile(member, BytesIO(content))
    command = [str(python), "-m", "benchmarks.peer_networks", "write", str(folder)]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=True)
    except subprocess.TimeoutExpired as error:
        notes["mosaic"] = f"{PEERS['mosaic']}: it wrote no shards within {error.timeout:.0f} s"
    except subprocess.CalledProcessError as error:
        notes["mosaic"] = f"{PEERS['mosaic']}: {_last_line(error.stderr)}"


def _measure(way: str, folder: Path, repetition: int, deadline: float) -> tuple[float, int]:
    """Processor seconds of an image and network, the mean of a few epochs after the first, and the images of one."""
    with ExitStack() as stack:
        networks = stack.enter_context(_running(way, folder, repetition))
        networks.epoch(min(deadline, time.monotonic() + _START_SECONDS))
        found = [networks.epoch(min(deadline, time.monotonic() + _EPOCH_SECONDS)) for _ in range(EPOCHS)]
    return statistics.mean(cost for cost, _ in found), min(images for _, images in found)


class _Networks:
    """The processes of one way."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process, self._errors = process, errors

    def epoch(self, deadline: float) -> tuple[float, int]:
        """Let all read one epoch; processor seconds of an image and network, and the fewest images of a network.

        NoAnswer: they ended, or did not come to its end in time.
        """
        before = self._cpu_seconds()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"epoch\n")
            self._process.stdin.flush()
        images, least = self._answer(deadline)
        if not images:
            raise NoAnswer("it gave no image")
        return (self._cpu_seconds() - before) / images, least

    def _answer(self, deadline: float) -> tuple[int, int]:
        stream, heard, begin = self._process.stdout, b"", time.monotonic()
        assert stream is not None
        while time.monotonic() < deadline:
            if not select.select([stream], [], [], max(deadline - time.monotonic(), 0.0))[0]:
                break
            part = os.read(stream.fileno(), 1 << 16)
            heard += part
            found = re.search(rb"^images (\d+) (\d+)\n", heard, re.MULTILINE)
            if found:
                return int(found[1]), int(found[2])
            if not part:
                raise NoAnswer(self._last_words() or "it ended")
        raise NoAnswer(f"it gave no epoch within {time.monotonic() - begin:.0f} s")

    def _last_words(self) -> str:
        self._errors.seek(0)
        return _last_line(self._errors.read().decode(errors="replace"))

    def _cpu_seconds(self) -> float:
        root = psutil.Process(self._process.pid)
        services = [
            other for other in psutil.process_iter(["cmdline"]) if "preprocess.sharing" in (other.info["cmdline"] or ())
        ]
        return sum(map(cpu_of, [root, *root.children(recursive=True), *services]))


@contextmanager
def _running(way: str, folder: Path, repetition: int) -> Iterator[_Networks]:
    """Start the processes of a way, in a session of their own, and end all of them, whatever they do."""
    library, count = _library(way), _FEWER_NETWORKS if way == _FEWER else NETWORKS
    given = {
        "folder": str(folder),
        "networks": count,
        "name": f"{folder.name}-{way}-{repetition}",
        "ports": _free_ports(4),
    }
    for link in folder.glob("mds-*"):
        link.unlink()
    python = peers_python() if library else sys.executable
    command = [str(python), "-m", "benchmarks.peer_networks", library or way, json.dumps(given)]
    (folder / "tmp").mkdir(exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"TMPDIR": str(folder / "tmp")} if library else {})
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env=environment,
        )
        try:
            yield _Networks(process, errors)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_END_SECONDS)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()


def _library(way: str) -> str:
    """The other library that a way uses; empty: none."""
    return "tensorsocket" if way == _FEWER else way if way in PEERS else ""


@contextmanager
def _swept() -> Iterator[None]:
    """Remove what the peers leave in shared memory, where killed ones leave it."""
    before = set(os.listdir(_SHARED_MEMORY)) if _SHARED_MEMORY.is_dir() else set()
    try:
        yield
    finally:
        for path in _SHARED_MEMORY.glob("*"):
            own = path.lstat().st_uid == os.getuid()
            if path.name not in before and own and _LEFT_BEHIND.fullmatch(path.name):
                path.unlink(missing_ok=True)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _last_line(text: str) -> str:
    """The line of an error in what a process printed, or else its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (errors or lines or [""])[-1]


def _table(costs: dict[str, list[float]], reached: dict[str, int]) -> dict[str, Any]:
    """One row for each way; ratios are of the same repetition."""
    rows: list[list[Any]] = []
    for way, found in costs.items():
        row: list[Any] = [NAMES[way], 1e6 * statistics.median(found), reached[way]]
        for ours in ("shared", "seeds"):
            ratios = [theirs / one for theirs, one in zip(found, costs.get(ours, []))]
            row.append(statistics.median(ratios) if ratios else "-")
        rows.append(row)
    return {
        "title": f"{IMAGES} pictures of 256 px, {NETWORKS} networks, other libraries",
        "columns": COLUMNS,
        "rows": rows,
    }
