"""Real MPI jobs: the ring within a node and between pretended nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest

RAGGED = "tests.preprocess.support.ragged_bytes"
RAGGED_PARTS = {"train": 103, "held_out": 17}
TORN = "tests.preprocess.support.torn_numbers"
TORN_HELD_OUT = {"source": f"{TORN}:TornNumbers", "arguments": {"count": 17, "torn": [2, 3]}}


@pytest.mark.parametrize(
    ("ranks", "nodes", "makers", "rounds", "side", "transport"),
    [
        (2, 1, 2, 60, 8, "self,sm,tcp"),
        (3, 3, 1, 60, 8, "self,sm,tcp"),
        pytest.param(4, 2, 3, 60, 8, "self,sm,tcp", marks=pytest.mark.slow),
        pytest.param(2, 2, 2, 300, 8, "self,sm,tcp", marks=pytest.mark.slow),
        pytest.param(5, 5, 3, 30, 8, "self,sm,tcp", marks=pytest.mark.slow),
        pytest.param(6, 3, 2, 30, 8, "self,sm,tcp", marks=pytest.mark.slow),
        (4, 4, 2, 30, 160, "self,tcp"),
        (2, 2, 1, 40, 160, "self,tcp"),  # slots of 100 kB are sent by rendezvous, not eagerly
    ],
)
def test_every_reader_sees_the_right_bytes(
    mpi_job: Callable[..., str],
    data_values: dict[str, object],
    ranks: int,
    nodes: int,
    makers: int,
    rounds: int,
    side: int,
    transport: str,
) -> None:
    """Lanes are closed at random moments and opened anew with other streams and readers, hundreds of times."""
    scaled = {"resize": {"size": side}}
    values = dict(data_values)
    for key in ("transforms", "held_out_transforms"):
        values[key] = [*data_values[key], *([scaled] if side != 8 else [])]  # type: ignore[misc]
    numbers = map(str, (nodes, makers, rounds, ranks + nodes))
    out = mpi_job("between_nodes", ranks, json.dumps(values), *numbers, transport=transport)
    found = re.search(rf"read (\d+) samples in {rounds} rounds", out)
    assert found and int(found[1]) > 10 * rounds


@pytest.mark.parametrize(
    ("ranks", "nodes", "makers", "rounds"),
    [(4, 4, 2, 30), (3, 1, 2, 40), pytest.param(5, 3, 3, 60, marks=pytest.mark.slow)],
)
def test_ragged_samples_come_as_they_are(
    mpi_job: Callable[..., str], ranks: int, nodes: int, makers: int, rounds: int
) -> None:
    """The same with samples of any number of bytes, none among them, which preprocessors keep."""
    parts = {part: {"source": f"{RAGGED}:Bytes", "arguments": {"count": n}} for part, n in RAGGED_PARTS.items()}
    values = json.dumps({"name": "ragged", **parts, "store": True})
    out = mpi_job("between_nodes", ranks, values, *map(str, (nodes, makers, rounds, ranks + nodes)))
    found = re.search(rf"read (\d+) samples in {rounds} rounds", out)
    assert found and int(found[1]) > 10 * rounds


@pytest.mark.parametrize(
    ("train", "held_out"),
    [
        ({"source": f"{TORN}:TornNumbers", "arguments": {"count": 103, "torn": [*range(0, 103, 7)]}}, TORN_HELD_OUT),
        ({"source": f"{RAGGED}:Bytes", "arguments": {"count": 103, "giant": 9}}, None),
    ],
)
def test_readers_hear_which_samples_others_stand_for(
    mpi_job: Callable[..., str], train: dict[str, object], held_out: dict[str, object] | None
) -> None:
    values = {"name": "torn", "train": train, "held_out": held_out, "store": True, "on_corrupt": "skip"}
    out = mpi_job("between_nodes", 3, json.dumps(values), "3", "2", "30", "5")
    found = re.search(r"read (\d+) samples in 30 rounds", out)
    assert found and int(found[1]) > 300


def test_a_killed_reader_is_dropped(mpi_job: Callable[..., str]) -> None:
    assert "the other reader saw all samples" in mpi_job("killed_reader", 3)


def test_too_little_shared_memory(mpi_job: Callable[..., str]) -> None:
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=100m tmpfs /dev/shm && exec "$@"', "sh")
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root can mount a small /dev/shm")
    if subprocess.run([*mount, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system does not let root mount a small /dev/shm")
    out = mpi_job("small_memory", 2, prefix=mount)
    assert re.search(
        r"the ring needs \d+ bytes \(40\d\.\d MiB\).*/dev/shm has \d+ \(\d\d\.\d MiB\) free; use fewer", out
    )
