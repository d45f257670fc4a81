"""A lane carries each epoch's samples once, in order, wherever it starts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.stream import LaneSchedule


def plainly(schedule: LaneSchedule, epochs: int) -> list[tuple[int, str, int]]:
    """The row of samples as a nested loop, from the first place on."""
    row = []
    for epoch in range(schedule.first_epoch, schedule.first_epoch + epochs):
        row += [(epoch, TRAIN, place) for place in range(schedule.length + schedule.tail)]
        row += [(epoch, HELD_OUT, sample) for sample in range(schedule.held_out)]
    return row[schedule.first_place :]


@st.composite
def schedules(draw: st.DrawFn, ends: bool = False) -> LaneSchedule:
    length, tail, held_out = draw(st.integers(1, 12)), draw(st.integers(0, 15)), draw(st.integers(0, 8))
    first = draw(st.integers(0, 5))
    place = draw(st.integers(0, length + tail))
    return LaneSchedule(length, tail, held_out, first, place, first + draw(st.integers(0, 3)) if ends else None)


@given(schedules(), st.integers(0, 60), st.integers(0, 60))
def test_spans_cover_every_position_once(schedule: LaneSchedule, start: int, count: int) -> None:
    row = plainly(schedule, 130)
    found = []
    for span in schedule.spans(start, start + count):
        assert span.count > 0
        found += [(span.epoch, span.kind, span.start + offset) for offset in range(span.count)]
    assert found == row[start : start + count]


@given(schedules(ends=True), st.integers(1, 7))
def test_slots_together_are_the_whole_lane(schedule: LaneSchedule, slot: int) -> None:
    assert schedule.end is not None and schedule.last_epoch is not None
    found = []
    for start in range(0, schedule.end + 2 * slot, slot):
        for span in schedule.spans(start, start + slot):
            found += [(span.epoch, span.kind, span.start + offset) for offset in range(span.count)]
    assert found == plainly(schedule, schedule.last_epoch - schedule.first_epoch + 1)
    assert len(found) == schedule.end


@given(schedules(), st.integers(0, 4), st.data())
def test_positions_are_the_inverse(schedule: LaneSchedule, later: int, data: st.DataObject) -> None:
    epoch = schedule.first_epoch + later
    row = plainly(schedule, 7)
    lowest = schedule.first_place if later == 0 else 0
    if lowest < schedule.places:
        place = data.draw(st.integers(lowest, schedule.places - 1))
        assert row[schedule.position(epoch, place)] == (epoch, TRAIN, place)
    if schedule.held_out:
        sample = data.draw(st.integers(0, schedule.held_out - 1))
        assert row[schedule.held_out_position(epoch, sample)] == (epoch, HELD_OUT, sample)
    assert schedule.position(epoch, schedule.places) == schedule.held_out_position(epoch)
    assert schedule.held_out_position(epoch, schedule.held_out) == schedule.position(epoch + 1, 0)


def test_what_is_not_in_the_lane() -> None:
    schedule = LaneSchedule(10, 2, 3, first_epoch=4, first_place=5, last_epoch=5)
    assert schedule.end == 25 and schedule.position(4, 5) == 0
    with pytest.raises(ValueError, match="epoch 4, place 4 is not in this lane, which goes from epoch 4, place 5 to"):
        schedule.position(4, 4)
    with pytest.raises(ValueError, match="epoch 6, held-out sample 0 is not in this lane"):
        schedule.held_out_position(6)
    with pytest.raises(ValueError, match="places 0 to 12"):
        schedule.position(4, 13)
    with pytest.raises(ValueError, match="there are 3"):
        schedule.held_out_position(4, 4)
    assert list(schedule.spans(25, 30)) == []


@pytest.mark.parametrize(
    "values",
    [{"length": 0}, {"length": 3, "tail": -1}, {"length": 3, "first_place": 4}, {"length": 3, "last_epoch": -1}],
)
def test_impossible_lanes(values: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        LaneSchedule(**values)
