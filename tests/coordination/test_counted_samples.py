"""What rank 0 counts of samples: who reads how many, what preprocessors say, and for whom it waits at the end."""

from __future__ import annotations

import pytest

from fleet.coordination import live_executor
from fleet.coordination.protocol import AtStep, CloseLane, EpochEnded, Left, SamplesMade
from tests.coordination.test_losses import Machine


def done(job: str, rank: int, epoch: int, step: int = 0) -> Left:
    return Left(job, rank, "done", "epochs", epoch, step)


def test_networks_read_from_where_they_begin_to_where_they_end() -> None:
    machine = Machine()  # an epoch is 10 samples, a step is one
    machine.start(a=(0, 1), b=(2,))
    machine.post.incoming += [done("a", 2, 3, 4), done("a", 3, 3, 4), done("b", 4, 2)]
    machine.events()
    machine.post.incoming += [SamplesMade(rank, {"data": 30}, {"data": 12}) for rank in (0, 1, 0, 1)]
    counts = machine.executor.count_samples()
    assert (counts.read, counts.laid, counts.made) == ({"data": 54}, {"data": 60}, {"data": 24})
    assert counts.per_read == 24 / 54


def test_what_a_lost_group_has_told_of_its_way_is_read() -> None:
    machine = Machine()
    machine.start(a=(0,))
    ended = EpochEnded("a", 1, 10, 1.0, 1.0, {}, 0.1, (0.0,), (0.0,), (0.0,))
    machine.post.incoming += [ended, AtStep("a", 1, 4, 10, 1.0)]
    machine.events()
    machine.lose(2)
    machine.events()
    machine.post.incoming += [SamplesMade(0, {}, {}), SamplesMade(1, {}, {})]
    assert machine.executor.count_samples().read == {"data": 14}


def test_the_latest_word_of_each_preprocessor_counts() -> None:
    machine = Machine()
    machine.start(a=(0,), b=(1,))
    machine.post.incoming += [done("a", 2, 1), SamplesMade(1, {"data": 5}, {"data": 5}), done("b", 3, 1)]
    machine.events()
    assert sorted(rank for rank, _ in machine.post.told(CloseLane)) == [0, 0, 0, 0, 1, 1], "a keeper, two who fill"
    late = [SamplesMade(0, {"data": 2}, {"data": 1}), SamplesMade(1, {"data": 9}, {"data": 6})]
    machine.post.incoming += [*late, SamplesMade(0, {"data": 3}, {"data": 1}), SamplesMade(0, {"data": 99}, {})]
    assert machine.executor.count_samples().laid == {"data": 12}, "nobody owes a word after these"


def test_who_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_executor, "LAST_WORD_SECONDS", 0.01)
    machine = Machine()
    machine.start(a=(0,))
    machine.post.incoming += [done("a", 2, 1), SamplesMade(0, {"data": 7}, {"data": 7})]
    machine.events()
    assert machine.executor.count_samples().laid == {"data": 7}


def test_a_lost_preprocessor_is_not_waited_for() -> None:
    machine = Machine()
    machine.start(a=(0,))
    machine.post.incoming += [done("a", 2, 1), SamplesMade(0, {"data": 7}, {"data": 7})]
    machine.events()
    machine.lose(1)
    machine.post.incoming.append(SamplesMade(0, {"data": 99}, {}))
    assert machine.executor.count_samples().laid == {"data": 7}
    assert machine.post.incoming, "it listened on, though nobody owed a word"
