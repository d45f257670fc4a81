"""The benchmark of runs of many epochs: what it calls the same, and a short one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import Look, Soaked, judged, soaked

EPOCHS = 40


def steady(slower: float = 1.0, larger: float = 1.0, opened: int = 0, shared: int = 0) -> Soaked:
    """A run whose last half differs from its first by so much."""
    found, now, cpu = Soaked(exit_code=0), 0.0, 0.0
    for epoch in range(1, EPOCHS + 1):
        late = epoch > EPOCHS // 2
        now, cpu = (each + (slower if late else 1.0) for each in (now, cpu))
        found.times.append(now)
        resident = int(1000 * (larger if late else 1.0))
        found.looks.append(Look(epoch, {0: cpu}, {0: resident}, {0: 9 + late * opened}, late * shared))
    return found


def short(found: Soaked) -> list[str]:
    """The bars that a run misses."""
    return [bar["name"] for bar in judged(found, EPOCHS)["bars"] if not bar["ok"]]


def test_a_run_that_stays_as_it_is_misses_no_bar() -> None:
    assert short(steady(slower=1.04, larger=1.019)) == []


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"slower": 1.2}, ["wall time an epoch, last by first", "CPU time an epoch, last by first, all ranks"]),
        ({"larger": 1.05}, ["memory of rank 0, last by first"]),
        ({"opened": 1}, ["more open files of a rank"]),
        ({"shared": 4096}, ["more bytes in /dev/shm"]),
    ],
)
def test_what_grows_misses_its_bar(change: dict[str, float], missed: list[str]) -> None:
    assert short(steady(**change)) == missed  # type: ignore[arg-type]


def test_a_run_that_ends_early_is_told() -> None:
    found = steady()
    found.times.pop()
    assert short(found) == ["epochs that ended"]


def test_a_short_run_is_looked_at_from_outside(tmp_path: Path) -> None:
    found = soaked(tmp_path, 10 * EPOCHS)
    assert (found.exit_code, len(found.times)) == (0, 10 * EPOCHS), found.words
    look = next(each for each in found.looks if len(each.resident) == 3)
    assert sorted(look.resident) == sorted(look.cpu) == [0, 1, 2] and all(look.resident.values())
    assert all(look.files.values()) and look.shared > 0
