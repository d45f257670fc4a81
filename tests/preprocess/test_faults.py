"""The data path without a run: what its processes do when one of them, or what it reads, fails."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.closing import close_all
from preprocess import Dataset, DatasetSpec, SourceError, SourceSpec
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.errors import CorruptLimitError, RingTimeout, SampleError, SkippedSample, WriterLost
from preprocess.samples.order import TRAIN
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from tests.preprocess.support.damaged import damaged_module, made, numbered

SLOT = 4


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Any]:
    with damaged_module(tmp_path) as found:
        yield found


class Node:
    """A ring with one open lane of the numbered samples, and its preprocessors, each in a process of its own."""

    def __init__(self, readers: int, writers: int) -> None:
        self.dataset = Dataset(numbered())
        self.ring = Ring.forked(
            RingShape(1, lane_bytes(self.dataset.layout, 32, SLOT, writers), SLOT, readers, writers)
        )
        stream = StreamKey("numbers", 3, 0)
        schedule = LaneSchedule(40, 0, 12, last_epoch=2)
        self.spec = LaneSpec(0, 1, stream, schedule, self.dataset.layout, {0: tuple(range(readers))})
        self.ring.lanes[0].open(self.spec.layout, list(range(readers)), 1)
        self.end = schedule.end or 0
        self.wanted = self.dataset.layout.empty(self.end)
        for _ in self.dataset.fill(schedule, 3, 0, *self.wanted):
            pass

    def fill(self, index: int) -> None:
        """A preprocessor's life: until nobody reads any more."""
        preprocessor = Preprocessor(self.ring, index, {"numbers": self.dataset})
        preprocessor.open_lane(self.spec)
        while not preprocessor.is_deserted(0):
            if not preprocessor.step():
                preprocessor.wait(0.05)
        close_all(preprocessor, [0], 10)

    def reader(self, number: int) -> LaneReader:
        return self.ring.lanes[0].reader(number, self.spec.layout, 1)

    def read(self, reader: LaneReader, start: int, stop: int) -> None:
        """Read and check a part of the lane."""
        for position in range(start, stop, SLOT):
            assert reader.wait(position + SLOT, timeout=20)
            inputs, targets = reader.take(np.arange(position, position + SLOT))
            assert np.array_equal(inputs, self.wanted[0][position : position + SLOT])
            assert np.array_equal(targets, self.wanted[1][position : position + SLOT])
            reader.release(position + SLOT)


@contextmanager
def processes(*bodies: Callable[[], None]) -> Iterator[list[int]]:
    """Run each body in a process; at the end each must have ended well, or by SIGKILL."""
    children = []
    for body in bodies:
        child = os.fork()
        if child == 0:
            try:
                body()
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        children.append(child)
    ends = []
    try:
        yield children
        ends = [os.waitpid(child, 0)[1] for child in children]
    finally:
        if not ends:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    assert all(end in (0, signal.SIGKILL) for end in ends), ends


def test_readers_go_on_without_one_that_is_killed(module: Any) -> None:
    """It dies with slots in its hands, so that the lane is full for the others."""
    node = Node(readers=3, writers=2)

    def victim() -> None:
        node.read(node.reader(0), 0, 8)
        os.kill(os.getpid(), signal.SIGKILL)

    def survivor(number: int) -> Callable[[], None]:
        def body() -> None:
            reader = node.reader(number)
            node.read(reader, 0, node.end)
            reader.leave()

        return body

    with processes(lambda: node.fill(0), lambda: node.fill(1), victim, survivor(1), survivor(2)):
        pass
    assert node.ring.lanes[0].active_readers == ()


def test_a_killed_preprocessor_is_named_to_its_readers(module: Any) -> None:
    """One of two is killed, as it makes sample 7; what was handed over before is read first."""
    node = Node(readers=1, writers=2)
    slot = int(np.flatnonzero(node.wanted[1][:40] == 7)[0]) // SLOT
    dying = slot % 2

    def victim() -> None:
        module.damage = lambda train, sample: os.kill(os.getpid(), signal.SIGKILL) if train and sample == 7 else None
        node.fill(dying)

    with processes(victim, lambda: node.fill(1 - dying)) as children:
        reader = node.reader(0)
        node.read(reader, 0, slot * SLOT)
        words = rf"reader 0 of lane 0 waited for .* from preprocessor {dying} .process {children[0]}., which is dead"
        with pytest.raises(WriterLost, match=words) as told:
            node.read(reader, slot * SLOT, node.end)
        assert "start the run again" in str(told.value)
        reader.leave()


def test_a_wait_for_a_source_that_never_comes_back_ends_and_names_the_preprocessor(module: Any) -> None:
    node = Node(readers=1, writers=1)

    def stuck() -> None:
        module.damage = lambda train, sample: signal.pause()
        node.fill(0)

    with processes(stuck) as children:
        reader = node.reader(0)
        with pytest.raises(RingTimeout, match="positions 0 to 3 .* from preprocessor 0 .* for 0.3 s"):
            reader.wait(4, timeout=0.3)
        os.kill(children[0], signal.SIGKILL)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("shape", r"sample 9, epoch 0: ValueError: the sample is \(9, 3\) of float32, all others are \(4, 3\)"),
        ("dtype", r"the sample is \(4, 3\) of float64, all others are \(4, 3\) of float32"),
        ("target", r"the target is \(2,\) of int64, all others are \(\) of int64"),
    ],
)
def test_a_sample_that_does_not_fit_its_slot_is_refused(module: Any, wrong: str, words: str) -> None:
    """One that is larger would else run over into the next."""
    dataset = Dataset(numbered())
    module.BROKEN[True, 9] = wrong
    inputs, targets = dataset.layout.empty(3)
    inputs[:], targets[:] = 77, 77
    with pytest.raises(SampleError, match=words):
        dataset.make(TRAIN, 1, 0, 9, inputs[1], targets[1:2])
    assert np.all(inputs[[0, 2]] == 77) and np.all(targets[[0, 2]] == 77)


@pytest.mark.parametrize(
    ("method", "words"), [("__init__", "calling it with"), ("__len__", "its length"), ("__getitem__", "its sample 0")]
)
def test_a_source_that_raises_at_its_opening_is_told_of(
    module: Any, monkeypatch: pytest.MonkeyPatch, method: str, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("the archive is torn")

    monkeypatch.setattr(module.Numbered, method, fail)
    for on_corrupt in ("raise", "skip"):
        with pytest.raises(SourceError, match=f"'own_damaged:Numbered': .*{words}.* OSError: the archive is torn"):
            Dataset(numbered(on_corrupt=on_corrupt))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of twenty pictures; three files are truncated, empty or no images."""
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(20):
            picture = Image.fromarray(rng.integers(0, 256, (12, 10, 3), np.uint8))
            picture.save(tmp_path / "pictures" / name / f"{number:02}.jpg")
    torn = tmp_path / "pictures" / "cats" / "03.jpg"
    torn.write_bytes(torn.read_bytes()[:200])
    (tmp_path / "pictures" / "cats" / "11.jpg").write_text("<html>404 Not Found</html>")
    (tmp_path / "pictures" / "dogs" / "00.jpg").write_bytes(b"")
    return tmp_path / "pictures"


CORRUPT = [3, 11, 20]


def pictures(folder: Path, **keys: object) -> DatasetSpec:
    values = DatasetSpec("pictures", SourceSpec("image_folder", {"path": str(folder)})).to_json()
    return DatasetSpec.from_json(values | keys)


def test_damaged_image_files_end_or_are_skipped(folder: Path) -> None:
    plain = Dataset(pictures(folder))
    for sample in CORRUPT:
        with pytest.raises(SampleError, match=f"data set 'pictures', train sample {sample}, epoch 0: "):
            made(plain, TRAIN, 1, 0, [sample])
    skipped: list[SkippedSample] = []
    dataset = Dataset(pictures(folder, on_corrupt="skip"), skipped.append)
    inputs, targets = made(dataset, TRAIN, 1, 0)
    assert sorted(found.sample for found in skipped) == CORRUPT
    assert {found.stage for found in skipped} == {"source"}
    for found in skipped:
        assert np.array_equal(inputs[found.sample], inputs[found.substitute])
        assert targets[found.sample] == found.substitute // 20
    with pytest.raises(CorruptLimitError, match="the 2 of corrupt_limit"):
        made(Dataset(pictures(folder, on_corrupt="skip", corrupt_limit=2)), TRAIN, 1, 0)


def test_little_shared_memory_is_told_before_anything_is_made(mpi_job: Callable[..., str]) -> None:
    """8 MiB, where containers have 64 by default; a ring that fits into it is made all the same."""
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=8m tmpfs /dev/shm && exec "$@"', "sh")
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small /dev/shm")
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not let root mount a small /dev/shm")
    out = mpi_job("small_memory", 2, prefix=mount)
    assert re.search(r"the ring needs \d+ bytes \(40\d\.\d MiB\).*/dev/shm has \d+ \([678]\.\d MiB\) free; use", out)
    assert "--shm-size" in out
