"""The best checkpoint that is kept is the one that the journal names, whatever is cut off when."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.coordination.job_record import UNRATED, JobRecord, record_checkpoint, settle_best, standing, told_bests
from fleet.coordination.live_state import LiveState, Recorder
from fleet.journal import events
from fleet.journal.journal import Journal, read_journal
from fleet.journal.metric_order import MetricOrder
from fleet.models.members import Member
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.workers.job_run import Saving, save
from tests.live.support.processes import run, started
from tests.models.support.families import FAMILIES, LONG, long_ensemble
from tests.trainers.support.made_checkpoints import checkpoint
from trainers import Checkpoint, Stop, read
from trainers.state.history import History
from trainers.state.kept_checkpoints import Best, ByMetric, best_file

METRIC, JOB = "accuracy", "j"
CHANGES = [(os, "replace"), (os, "link"), (os, "unlink"), (os, "fsync"), (Journal, "write")]
"""What changes the run directory, and may be the last thing that a process was about to do."""


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_after(operations: int) -> Iterator[None]:
    """End the process when it is about to make a change after so many; what it does as it ends changes nothing."""
    left, before = [operations], [getattr(owner, name) for owner, name in CHANGES]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **keys: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return change(*args, **keys)

        return make

    for (owner, name), change in zip(CHANGES, before):
        setattr(owner, name, counted(change))
    try:
        yield
    except Killed:
        pass
    finally:
        for (owner, name), change in zip(CHANGES, before):
            setattr(owner, name, change)


class Trained:
    """What a trainer of a job gives to be saved, which has come to an epoch of a drawn history."""

    def __init__(self, history: list[float], epoch: int) -> None:
        self._history, self._epoch = history, epoch

    def snapshot(self) -> Checkpoint:
        return replace(
            checkpoint(self._epoch), history=History([{METRIC: value} for value in self._history[: self._epoch]])
        )


class DrawnRun:
    """One job of a run whose sessions are cut off.

    Args:
        folder: of the run.
        history: the metric's values, epoch by epoch.
        every: epochs between two checkpoints.
    """

    def __init__(self, folder: Path, history: list[float], every: int) -> None:
        folder.mkdir(exist_ok=True)
        self.history, self.journal = history, folder / "journal.jsonl"
        self.saving = Saving(folder / "checkpoints" / JOB, every, 2, ByMetric(METRIC, "higher"))

    def session(self, lag: int) -> None:
        """Go on from the checkpoints; rank 0 hears of a checkpoint when so many more are written."""
        job = JobState(JOB, UNRATED, 1, batch=1, remaining=9, epoch=1)
        journal = Journal(self.journal)
        books = Recorder(LiveState(Cluster((1,)), [JobRecord.of(job, "data/0")], seed=0), journal)
        try:
            found = standing(self.saving.folder, Stop(len(self.history)), ByMetric(METRIC, "higher"))
            journal.write(events.Session())
            settle_best(books.record, self.saving.folder, JOB, found, told_bests(read_journal(self.journal)))
            self._train(books, found.epoch, lag)
        finally:
            journal.close()

    def _train(self, books: Recorder, done: int, lag: int) -> None:
        written: deque[Any] = deque()
        for epoch in range(done + 1, len(self.history) + 1):
            values = [{METRIC: value} for value in self.history[:epoch]]
            if self.saving.is_due(values) or epoch == len(self.history):
                written.append(save(JOB, cast(Any, Trained(self.history, epoch)), self.saving))
            while len(written) > lag or (written and epoch == len(self.history)):
                record_checkpoint(books.record, written.popleft())

    def told(self) -> Best | None:
        return told_bests(read_journal(self.journal)).get(JOB)

    def assert_told_is_kept(self) -> None:
        told = self.told()
        if told is not None:
            kept = read(best_file(self.saving.folder, told.epoch))
            assert (kept.epoch, kept.step) == (told.epoch, 0) and kept.history[-1][METRIC] == told.value
            assert kept.history.best(METRIC, "higher") == (told.value, told.epoch)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=st.lists(st.sampled_from([0.1, 0.5, 0.5, 0.7, 0.9, float("nan")]), min_size=1, max_size=8),
    every=st.integers(1, 3),
    kills=st.lists(st.integers(0, 60), min_size=2, max_size=6),
    lag=st.integers(0, 2),
    damaged=st.booleans(),
)
def test_in_drawn_histories(history: list[float], every: int, kills: list[int], lag: int, damaged: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="fleet-best-"))
    try:
        drawn = DrawnRun(folder, history, every)
        for kill in kills:
            with killed_after(kill):
                drawn.session(lag)
            drawn.assert_told_is_kept()
        if damaged and (found := sorted(drawn.saving.folder.glob("epoch-*.h5"))):
            _damage(found[-1])
        drawn.session(lag)
        drawn.assert_told_is_kept()
        best, told = History([{METRIC: value} for value in history]).best(METRIC, "higher"), drawn.told()
        assert (told and (told.value, told.epoch)) == best
        names = [path.name for path in best_file(drawn.saving.folder, 1).parent.glob("*")]
        assert names == ([] if best is None else [best_file(drawn.saving.folder, best[1]).name])
    finally:
        shutil.rmtree(folder)


def test_killed_before_each_of_its_changes(tmp_path: Path) -> None:
    for kill in range(70):
        drawn = DrawnRun(tmp_path / str(kill), [0.1, 0.5, 0.5, 0.9], every=1)
        with killed_after(kill):
            drawn.session(lag=0)
        drawn.assert_told_is_kept()
        ended = (told := drawn.told()) is not None and told.epoch == 4
        drawn.session(lag=0)
        drawn.assert_told_is_kept()
        assert drawn.told() == Best(METRIC, 0.9, 4)
    assert ended, "there are changes after the last of these"


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_of_equal_values_the_earlier_and_of_a_loss_the_least() -> None:
    values = [{"accuracy": a, "loss": b} for a, b in [(0.1, 2.0), (0.5, 1.0), (0.5, 1.0), (0.2, 3.0)]]
    history = History(values)
    assert (history.best("accuracy", "higher"), history.best("loss", "lower")) == ((0.5, 2), (1.0, 2))
    assert History([{"loss": float("nan")}]).best("loss", "lower") is None
    with pytest.raises(KeyError, match="has accuracy, loss"):
        history.best("f1", "higher")


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again(tmp_path: Path) -> None:
    ensemble = long_ensemble(tmp_path, FAMILIES[:2])
    left = ensemble.left("run")
    for checkpoints in (1, 4):
        with started(ensemble.plain("run", "--restarts", "0"), tmp_path) as running:
            running.wait_for(lambda count=checkpoints: len(left.events("checkpoint")) >= count, "a checkpoint")  # type: ignore[misc]
            running.kill()
        _assert_agreement(left.path)
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0, ended.output
    for member in _assert_agreement(left.path):
        best = member.best(MetricOrder(METRIC, True))
        assert sorted(member.history) == list(range(1, LONG + 1)) and best is not None and member.kept is not None
        assert (member.kept.best.epoch, member.kept.best.value) == (best.epoch, best.value)


def _assert_agreement(run_folder: Path) -> tuple[Member, ...]:
    """What is kept is what the journal says; all networks."""
    from fleet.models.members import read_members

    members = read_members(run_folder).all
    told = told_bests(read_journal(run_folder / "journal.jsonl"))
    for member in members:
        if member.name in told:
            assert member.kept is not None and member.kept.best == told[member.name]
            kept = read(member.kept.path)
            assert kept.history[-1][METRIC] == member.kept.best.value and kept.epoch == member.kept.best.epoch
    return members
