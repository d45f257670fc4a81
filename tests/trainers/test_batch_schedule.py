"""Which batch each epoch has: changes, learning rates, and how far a schedule comes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.task.batch_plan import (
    RULES,
    BatchChange,
    BatchPlan,
    BatchSchedule,
    as_lists,
    from_lists,
    learning_rates_times,
)

changes = st.builds(
    lambda epochs, sizes: tuple(map(BatchChange, sorted(epochs), sizes)),
    st.sets(st.integers(0, 6), min_size=4, max_size=4),
    st.lists(st.integers(1, 40), min_size=4, max_size=4),
)
schedules = st.builds(
    BatchSchedule, st.integers(1, 40), st.sampled_from(list(RULES)), st.sampled_from((0.0, 0.5, 2.0)),
    st.integers(1, 200), changes,
)  # fmt: skip


@given(schedules, st.integers(1, 8), st.integers(0, 7))
def test_a_schedule_comes_as_far_in_each_epoch_as_without_changes(
    schedule: BatchSchedule, workers: int, epoch: int
) -> None:
    steps = BatchPlan(schedule.samples, workers, schedule.at(epoch).size).steps_per_epoch
    turns = [schedule.turns(epoch, step, workers) for step in range(steps)]
    assert sum(turns) == BatchPlan(schedule.samples, workers, schedule.own).steps_per_epoch
    assert min(turns) >= 0


@given(schedules, st.integers(1, 8))
def test_learning_rates_come_to_what_the_rule_says_and_never_beyond(schedule: BatchSchedule, workers: int) -> None:
    wanted = [1.0, *(RULES[schedule.rule](change.size / schedule.own) for change in schedule.changes)]
    for epoch in range(9):
        steps = BatchPlan(schedule.samples, workers, schedule.at(epoch).size).steps_per_epoch
        for step in range(steps):
            factor = schedule.factor(epoch, step, workers)
            assert min(wanted) * 0.999 <= factor <= max(wanted) * 1.001
    assert schedule.factor(9, 0, workers) == pytest.approx(wanted[-1])


def test_a_rate_warms_up_along_a_line() -> None:
    schedule = BatchSchedule(8, "linear", 2.0, 64, (BatchChange(1, 32),))
    assert [schedule.factor(*place, 1) for place in ((0, 7), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0))] == [
        1.0, 1.0, 1.75, 2.5, 3.25, 4.0,
    ]  # fmt: skip


def test_a_change_in_the_middle_of_a_warm_up_begins_where_that_stood() -> None:
    schedule = BatchSchedule(8, "linear", 2.0, 64, (BatchChange(0, 32), BatchChange(1, 8)))
    assert [schedule.factor(epoch, 0, 1) for epoch in (0, 1, 2, 3)] == [1.0, 2.5, 1.75, 1.0]


@pytest.mark.parametrize(("rule", "factor"), [("linear", 4.0), ("square_root", 2.0), ("keep", 1.0)])
def test_each_rule_has_its_factor(rule: str, factor: float) -> None:
    assert BatchSchedule(8, rule, 0.0, 64, (BatchChange(0, 32),)).factor(0, 0, 2) == factor


def test_a_later_change_takes_the_place_of_what_was_to_come() -> None:
    schedule = BatchSchedule(8, "keep", 0.0, 64, (BatchChange(2, 16), BatchChange(5, 32)))
    assert schedule.changed(BatchChange(3, 24)).changes == (BatchChange(2, 16), BatchChange(3, 24))
    assert schedule.changed(BatchChange(3, 16)).changes == (BatchChange(2, 16),)
    assert schedule.changed(BatchChange(0, 8)).changes == ()
    assert schedule.changed(BatchChange(2, 16, 2)).changes == (BatchChange(2, 16, 2),)


def test_a_job_that_goes_on_keeps_its_past_and_takes_the_future() -> None:
    known = BatchSchedule(8, "keep", 0.0, 64)
    past = [BatchChange(1, 16), BatchChange(4, 32)]
    assert known.going_on(past, 2, 0).changes == (BatchChange(1, 16),)
    told = known.changed(BatchChange(1, 16)).changed(BatchChange(2, 24))
    assert told.going_on(past, 2, 0).changes == (BatchChange(1, 16), BatchChange(2, 24))
    with pytest.raises(ValueError, match="its batches were"):
        told.going_on(past, 2, 1)


def test_changes_are_plain_data_and_back() -> None:
    made = (BatchChange(0, 16), BatchChange(3, 64, 4))
    assert from_lists(as_lists(made)) == made


@pytest.mark.parametrize("wrong", [(-1, 8, 1), (0, 0, 1), (0, 8, 0)])
def test_impossible_changes_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="impossible"):
        BatchChange(*wrong)


def test_an_unknown_rule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="choose linear, square_root, keep"):
        BatchSchedule(8, "cubic", 0.0, 64)


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)])
def test_an_optimizer_has_its_own_rate_again_after_the_update(rate: float | torch.Tensor) -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=rate)
    weight.grad = torch.ones(1)
    with learning_rates_times(optimizer, 3.0):
        optimizer.step()
    assert float(weight.detach()) == pytest.approx(0.7)
    assert optimizer.param_groups[0]["lr"] is rate and float(rate) == pytest.approx(0.1)
