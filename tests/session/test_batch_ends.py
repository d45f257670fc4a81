"""How fast a job trains with the ends of its range of batches, and what is done where those do not fit on a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import Left
from fleet.journal.journal import Journal, as_json
from fleet.scheduling.model.batch_scaling import BatchRange
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.session.measuring import BatchEnds, Measurement, MeasurementResult
from trainers.task.batch_plan import BatchSchedule

WORKERS, OWN = 2, 8


class Device:
    """Trains 10 samples/s and one more for each sample of a worker; more than `room` do not fit."""

    def __init__(self, room: int) -> None:
        self.room, self.tried = room, list[int]()

    def measure(self, wanted: Iterable[Measurement]) -> Iterator[MeasurementResult]:
        for each in wanted:
            self.tried.append(each.batch_size)
            failed = Left("a", 1, "failed", error="out of memory") if each.batch_size > self.room else None
            yield MeasurementResult(each, (0,), 10.0 + each.batch_size, 5, 0.1, failed)


def opened(changes: bool, device: Device | None, **more: Any) -> tuple[BatchEnds, LiveState, list[Any]]:
    job = JobState("a", RateCurve({1: 14.0}, per_node=2), WORKERS, batch=OWN, remaining=300, epoch=100)
    schedule = BatchSchedule(OWN // WORKERS, "keep", 0.0, 100) if changes else None
    ledger = LiveState(Cluster((2,)), [JobRecord.of(job, "data/0", BatchRange(2, 200, WORKERS), schedule)], seed=0)
    events: list[Any] = []
    journal = Journal(None, lambda: 0.0)
    journal.listen(lambda event: events.append(as_json(event)))
    profiler: Any = device
    return BatchEnds(profiler, Recorder(ledger, journal), lambda job, size: None, **more), ledger, events


def test_both_ends_are_measured() -> None:
    device = Device(1000)
    ends, ledger, _ = opened(True, device)
    ends.rate()
    assert device.tried == [1, 100] and ledger.jobs["a"].alone == {2: 11.0, 200: 110.0}
    assert ledger.jobs["a"].fits is None


def test_of_a_job_whose_batch_changes_the_largest_is_looked_for_that_fits() -> None:
    device = Device(30)
    ends, ledger, events = opened(True, device)
    ends.rate()
    assert device.tried == [1, 100, 52, 28, 40, 34]
    job = ledger.jobs["a"]
    assert (job.fits, job.alone, job.state.batches) == (28, {2: 11.0, 56: 38.0}, (2, 200))
    (warning,) = (event["text"] for event in events if event["event"] == "warning")
    assert warning.endswith("(out of memory); batches of more than 56 are cut into parts")
    assert job.parts_of(200) == 4


def test_of_a_job_that_chooses_once_the_range_ends_with_its_own_batch() -> None:
    device = Device(30)
    ends, ledger, events = opened(False, device)
    ends.rate()
    assert device.tried == [1, 100] and ledger.jobs["a"].state.batches == (2, OWN)
    assert any("its range of batches is cut there" in event.get("text", "") for event in events)


@pytest.mark.parametrize("device", [None, Device(1000)])
def test_what_a_person_has_listed_is_not_measured(device: Device | None) -> None:
    ends, ledger, _ = opened(True, device, listed=lambda job: {2: 9.0, OWN: 1.0, 64: 50.0, 200: 70.0})
    ends.rate()
    assert ledger.jobs["a"].alone == {2: 9.0, 64: 50.0, 200: 70.0} and not (device and device.tried)
