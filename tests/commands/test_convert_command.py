"""`fleet convert` as a user calls it, and as a machine that dies ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import cv2
import h5py
import numpy as np
import psutil
import pytest
import yaml

from preprocess import open_source
from tests.warm.starting import python_path

LIMIT_SECONDS = 60

SLOW = """
import os
import numpy as np

class Parked:
    "Gives 700 samples; with a pipe called `gate`, the 300th only when somebody opens its other end."
    def __len__(self):
        return 700
    def __getitem__(self, index):
        if index == 300 and os.path.exists("gate"):
            open("gate").close()
        return np.full((3, 4), index % 256, np.uint8), index
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with train/ and val/ of PNGs, and the module `slow`."""
    for part, count in (("train", 10), ("val", 3)):
        for label, name in enumerate(("cat", "dog")):
            (tmp_path / "data" / part / name).mkdir(parents=True)
            for i in range(count):
                image = np.full((8 + i, 9, 3), 100 * label + i, np.uint8)
                cv2.imwrite(str(tmp_path / "data" / part / name / f"{i:02}.png"), image)
    (tmp_path / "slow.py").write_text(SLOW)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fleet", "convert", *arguments]


def fleet_convert(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": python_path()}
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


@pytest.fixture
def parked(folder: Path, started_cold: None) -> Iterator[subprocess.Popen[str]]:
    """A conversion of two workers, one of which is at the gate, with all before it on the disk."""
    os.mkfifo(folder / "gate")
    process = subprocess.Popen(
        command("slow:Parked", "x.h5", "--workers", "2"),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": python_path()},
        stderr=subprocess.PIPE,
        text=True,
    )
    record = folder / "x.h5.partial.progress"

    def is_noted() -> bool:
        return record.exists() and len(record.read_bytes().partition(b"\n")[2]) >= 256 * 32

    try:
        wait_for(lambda: is_noted() or process.poll() is not None, "the first 256 samples")
        yield process
    finally:
        process.kill()
        process.communicate()
        with suppress(OSError):  # nobody waits at the gate
            os.close(os.open(folder / "gate", os.O_WRONLY | os.O_NONBLOCK))


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {LIMIT_SECONDS} s for {what}"
        time.sleep(0.02)


def check_parked_samples(path: Path) -> None:
    source = open_source("hdf5", {"path": str(path), "verify": True})
    assert len(source) == 700
    for index in range(700):
        image, label = source.read(index)
        assert (image == index % 256).all() and image.shape == (3, 4, 1) and label == index


def test_what_it_prints_goes_into_a_spec(folder: Path) -> None:
    done = fleet_convert(folder, "data", "x.h5")
    assert done.returncode == 0, done.stderr
    assert "x.h5: train, 20 samples of 2 classes" in done.stdout
    data = yaml.safe_load(done.stdout.partition("spec:\n")[2])
    for split, count in (("train", 20), ("held_out", 6)):
        arguments = data[split]["arguments"] | {"path": str(folder / data[split]["arguments"]["path"])}
        assert len(open_source(data[split]["source"], arguments)) == count
    again = fleet_convert(folder, "data", "x.h5")
    assert again.returncode == 2 and again.stderr.count("\n") == 1 and "--force" in again.stderr
    assert fleet_convert(folder, "data", "x.h5", "--force", "--decoded").returncode == 2


def test_options_reach_the_conversion(folder: Path) -> None:
    np.savez(folder / "a.npz", x=np.zeros((4, 8, 8, 3), np.uint8), y=np.arange(4))
    done = fleet_convert(
        folder, *["a.npz", "a.h5", "--images", "x", "--labels", "y", "--encoded", "jpeg", "--quality", "50"]
    )
    assert done.returncode == 0 and "jpeg images" in done.stdout, done.stderr
    with h5py.File(folder / "a.h5") as file:
        assert bytes(file["train/bytes"][:3]) == b"\xff\xd8\xff"
    (folder / "data" / "train" / "cat" / "00.png").write_bytes(b"broken")
    arguments = ("data/train", "b.h5", "--held-out", "data/val", "--channels", "1", "--argument", "extensions=[png]")
    refused = fleet_convert(folder, *arguments)
    assert refused.returncode == 2 and "cat/00.png" in refused.stderr and "--skip-corrupt" in refused.stderr
    done = fleet_convert(folder, *arguments, "--skip-corrupt", "--workers", "1")
    assert done.returncode == 0 and "left out: data/train/cat/00.png: DecodeError" in done.stdout, done.stderr
    assert open_source("hdf5", {"path": str(folder / "b.h5")}).layout.input_shape == (-1, 9, 1)


def test_killed_conversion_goes_on_and_gives_the_same_file(folder: Path, parked: subprocess.Popen[str]) -> None:
    workers = psutil.Process(parked.pid).children(recursive=True)
    assert len(workers) >= 2
    parked.send_signal(signal.SIGKILL)
    parked.wait()
    assert not (folder / "x.h5").exists() and (folder / "x.h5.partial").exists()
    os.close(os.open(folder / "gate", os.O_WRONLY))  # the worker at the gate goes on, and finds its parent gone
    assert psutil.wait_procs(workers, timeout=LIMIT_SECONDS)[1] == []
    (folder / "gate").unlink()
    done = fleet_convert(folder, "slow:Parked", "x.h5", "--workers", "2")
    assert done.returncode == 0, done.stderr
    check_parked_samples(folder / "x.h5")
    assert fleet_convert(folder, "slow:Parked", "y.h5", "--workers", "1").returncode == 0
    assert (folder / "x.h5").read_bytes() == (folder / "y.h5").read_bytes()


@pytest.mark.slow
def test_signal_stops_a_conversion_that_can_go_on(folder: Path, parked: subprocess.Popen[str]) -> None:
    """As batch systems do, it is sent to all processes."""
    first = psutil.Process(parked.pid)
    for process in [*first.children(recursive=True), first]:
        process.send_signal(signal.SIGTERM)
    _, errors = parked.communicate(timeout=LIMIT_SECONDS)
    assert parked.returncode == 75 and "stopped; what was done is kept in x.h5.partial" in errors
    (folder / "gate").unlink()
    assert fleet_convert(folder, "slow:Parked", "x.h5").returncode == 0
    check_parked_samples(folder / "x.h5")


def test_flipped_byte_is_found(folder: Path) -> None:
    assert fleet_convert(folder, "data", "x.h5", "--workers", "1").returncode == 0
    whole = fleet_convert(folder, "--verify", "x.h5")
    assert whole.returncode == 0 and "all 26 samples are as they were written" in whole.stdout
    with h5py.File(folder / "x.h5") as file:
        place = file["held_out/bytes"].id.get_offset() + file["held_out/offsets"][2] + 1
    content = bytearray((folder / "x.h5").read_bytes())
    content[place] ^= 1
    (folder / "x.h5").write_bytes(content)
    found = fleet_convert(folder, "--verify", "x.h5")
    assert found.returncode == 1 and "held_out sample 2: its bytes do not match their checksum" in found.stdout
    (folder / "x.h5").write_bytes(content[:1000])
    assert fleet_convert(folder, "--verify", "x.h5").returncode != 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("data",), "convert needs SRC and DST"),
        (("none", "x.h5"), "there is no such file or folder"),
        (("data", "x.h5", "--encoded", "gif"), "the formats are png and jpeg"),
        (("data", "x.h5", "--encoded", "png", "--decoded"), "contradict each other"),
        (("data", "x.h5", "--argument", "root"), "an argument is written KEY=VALUE"),
        (("data", "x.h5", "--workers", "0"), "at least one worker"),
        (("data", "--verify", "x.h5"), "leave out data"),
        (("--verify", "none.h5"), "there is no such file"),
        (("--verify", "slow.py"), "is not a readable HDF5 file"),
        (("slow:None", "x.h5"), "has no 'None'"),
        (("slow:Parked", "x.h5", "--argument", "size=3"), "Parked() takes no arguments"),
    ],
)
def test_mistakes_are_told_in_one_paragraph(folder: Path, arguments: tuple[str, ...], text: str) -> None:
    done = fleet_convert(folder, *arguments)
    assert done.returncode == 2 and text in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not list(folder.glob("x.h5*"))
