"""Real MPI jobs: the ring within a node and between pretended nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    ("ranks", "nodes", "makers", "rounds"),
    [(2, 1, 1, 60), (3, 3, 1, 60), (4, 2, 2, 60), (4, 3, 3, 40), (4, 4, 2, 40), (2, 2, 2, 300)],
)
def test_every_reader_sees_the_right_bytes(
    mpi_job: Callable[..., str], data_values: dict[str, object], ranks: int, nodes: int, makers: int, rounds: int
) -> None:
    """Lanes are closed at random moments and opened anew with other streams, hundreds of times."""
    out = mpi_job("between_nodes", ranks, json.dumps(data_values), *map(str, (nodes, makers, rounds, ranks + nodes)))
    found = re.search(rf"read (\d+) samples in {rounds} rounds", out)
    assert found and int(found[1]) > 10 * rounds
