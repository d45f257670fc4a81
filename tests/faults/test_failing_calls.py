"""Each system call that a run makes on its directory fails, in each way: no checkpoint that was told of is lost."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.faults.support.shim import ERRORS, Point, Shim
from tests.faults.support.small_runs import (
    JOBS,
    RealRuns,
    Start,
    goes_on,
    has_the_bits,
    has_the_bits_of_its_history,
    quick_disk,
    standing_of,
)
from tests.faults.support.trials import Trial, report
from tests.live.support.bits import final_states
from tests.live.support.ensembles import Ensemble, RunFolder
from tests.live.support.processes import run

SHORT, REAL, PARTS = 3, 20, 16  # points of `make test`; of real ranks, each; parts of the sweep
NAMED = [  # a call, the run's code, and what it says
    (Point(5, "ENOSPC", only="write journal.jsonl"), 1, "journal.jsonl: No space left on device\nfleet: mend that"),
    (Point(2, "EIO", only="fsync journal.jsonl"), 1, "journal.jsonl: Input/output error\nfleet: mend that"),
    (Point(1, "EROFS", only="rename spec.json"), 1, "spec.json: Read-only file system"),
    (Point(1, "ESTALE", only="open journal.jsonl"), 1, "journal.jsonl: Stale file handle"),
    (Point(1, "ESTALE", only="ftruncate epoch-"), 1, "Stale file handle"),
    (Point(1, "EDQUOT", only="rename run.json"), 0, "2 of 2 networks done"),
    (Point(1, "EIO", only="unlink epoch-"), 0, "2 of 2 networks done"),
    (Point(2, "ENOSPC", True, "write metrics.csv"), 0, "metrics.csv cannot be written: No space left on device"),
    (Point(1, "ENOSPC", True, "write tfevents"), 0, "cannot be written: No space left on device"),
    (
        Point(1, "ENOSPC", True, "write report.html"),
        0,
        "report.html cannot be written: No space left on device; `fleet",
    ),
]
MIXED = [  # as groups of both kinds are noted, and their checkpoints are
    Point(6, "EIO", only="fsync journal.jsonl"),
    Point(12, "ENOSPC", only="write journal.jsonl"),
    Point(2, "EIO", only="rename epoch-"),
    Point(1, "ESTALE", only="open ensemble.json"),
]
CHANGING = [  # as batches are chosen, change, and are read again
    Point(8, "EIO", only="fsync journal.jsonl"),
    Point(30, "ENOSPC", True, only="write journal.jsonl"),
    Point(3, "ESTALE", only="open journal.jsonl"),
    Point(20, "EDQUOT", only="rename epoch-"),
]
SWEEP_SECONDS = 4 * 3600


def drawn(number: int, calls: int, seed: int) -> list[Point]:
    draw = random.Random(seed)
    return [Point(draw.randint(1, calls), draw.choice(ERRORS), draw.random() < 0.5) for _ in range(number)]


def of_call(number: int) -> list[Point]:
    """In three ways for once, in one for good; the next calls fail in the others."""
    errors = [ERRORS[(number + shift) % len(ERRORS)] for shift in (0, 2, 4, 1)]
    return [Point(number, error, lasts) for error, lasts in zip(errors, (False, False, False, True))]


def tried(trial: Trial, points: list[Point]) -> None:
    """All of them, side by side; nothing is wrong with any."""
    found = trial.all(points)
    print(report(found))
    assert any(each.failed for each in found), "the shim let no call fail"
    assert not any(each.wrong for each in found), report(found)


@pytest.fixture
def trial(struck: Start, plain: Start, undisturbed: Mapping[str, Path]) -> Trial:
    return Trial(struck, plain, partial(has_the_bits, wanted=undisturbed))


def test_drawn_calls_fail(trial: Trial) -> None:
    tried(trial, drawn(SHORT, trial.count(), 3))


LATER = [pytest.param(*each, marks=pytest.mark.slow) for each in NAMED[1:]]


@pytest.mark.parametrize(("point", "code", "says"), [NAMED[0], *LATER], ids=str)
def test_a_file_that_cannot_be_written_is_told_or_done_without(
    point: Point, code: int, says: str, trial: Trial
) -> None:
    found = trial(point)
    assert found.failed and not found.wrong, found
    assert found.ended.code == code and says in found.ended.output, found.ended.output


@pytest.mark.slow
def test_a_checkpoint_that_rank_0_alone_could_read_is_not_done_without(
    trial: Trial, struck: Start, plain: Start, undisturbed: Mapping[str, Path]
) -> None:
    with quick_disk() as disk:
        out, watch = disk / "run", Shim(disk / "run", disk / "state")
        assert struck(out, watch.variables(Point(3, "EIO", only="fsync journal.jsonl"))).code == 1
        assert standing_of(out)["mlp"] == (2, 0)
        ended = struck(out, watch.variables(Point(5, "EIO", only="open epoch-00002")))
        assert ended.code == 1 and "rank 0 read epoch 2, step 0 there, and this rank cannot" in ended.output
        assert not goes_on(plain, out, partial(has_the_bits, wanted=undisturbed), {"mlp": (2, 0)})


@pytest.mark.slow
@pytest.mark.timeout(SWEEP_SECONDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_each_call_fails(part: int, trial: Trial) -> None:
    calls = trial.count()
    assert 4 * calls >= 2000
    tried(trial, [each for number in range(1 + part, calls + 1, PARTS) for each in of_call(number)])


@pytest.mark.slow
@pytest.mark.timeout(SWEEP_SECONDS)
@pytest.mark.parametrize("rank", [0, 1])
def test_drawn_calls_of_a_real_rank_fail(
    rank: int, tiny: Ensemble, shimmed: dict[str, str], undisturbed: Mapping[str, Path]
) -> None:
    right = partial(has_the_bits, wanted=undisturbed)
    trial = Trial(RealRuns(tiny, shimmed), RealRuns(tiny, {}), right, rank)
    tried(trial, drawn(REAL, trial.count(), rank))


@pytest.fixture
def of_kinds(mixed: Ensemble, pinned: dict[str, str], pinned_and_shimmed: dict[str, str]) -> Trial:
    """Calls of rank 0 in a run on two kinds of trainers; its networks have the bits of one trainer."""
    ended = run(mixed.plain("alone", "--trainers", "1", "--set", "resources.kinds={}"), mixed.folder, **pinned)
    assert ended.code == 0, ended.output
    wanted = final_states(mixed.left("alone"), JOBS)

    def wrong_with(out: Path) -> list[str]:
        shared = [event for event in RunFolder(out).events("started") if len(event["devices"]) > 1]
        return has_the_bits(out, wanted) if shared else ["no network trained on both kinds"]

    return Trial(RealRuns(mixed, pinned_and_shimmed), RealRuns(mixed, pinned), wrong_with, rank=0)


@pytest.fixture
def of_batches(changing: Ensemble, shimmed: dict[str, str]) -> Trial:
    """Calls of rank 0 in a run whose batches change; no two have the same history."""

    def wrong_with(out: Path) -> list[str]:
        sizes = {event["batch"] for event in RunFolder(out).events("batch", "cnn")}
        return has_the_bits_of_its_history(out, JOBS) if len(sizes) > 1 else ["the batch did not change"]

    return Trial(RealRuns(changing, shimmed), RealRuns(changing, {}), wrong_with, rank=0)


@pytest.mark.slow
def test_a_call_fails_on_two_kinds_of_devices(of_kinds: Trial) -> None:
    tried(of_kinds, MIXED[:1])


def test_a_call_fails_as_batches_change(of_batches: Trial) -> None:
    tried(of_batches, CHANGING[:1])


@pytest.mark.slow
@pytest.mark.timeout(SWEEP_SECONDS)
def test_drawn_calls_fail_on_two_kinds_of_devices(of_kinds: Trial) -> None:
    tried(of_kinds, [*MIXED[1:], *drawn(REAL, of_kinds.count(), 5)])


@pytest.mark.slow
@pytest.mark.timeout(SWEEP_SECONDS)
def test_drawn_calls_fail_as_batches_change(of_batches: Trial) -> None:
    tried(of_batches, [*CHANGING[1:], *drawn(REAL, of_batches.count(), 6)])
