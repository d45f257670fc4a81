"""From where a job goes on whose ranks were lost: what its checkpoints say counts, not what had been told of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fleet.coordination.coordinator import MOST_LOSSES, Coordinator
from fleet.coordination.executor import Event, GroupEnded, RanksGone, RunHooks, Started, StopReason
from fleet.coordination.job_record import JobRecord, Standing
from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import Start
from fleet.journal.journal import Journal, as_json
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.policies import policy

HALF_WAY = Standing(2, 5, "a-2-5.h5", {"loss": 0.5})
DONE = Standing(3, 0, "a-3-0.h5", {"loss": 0.25}, ended="epochs")


class Losing:
    """Loses the group of each job as often as it is told to, before a word comes from it; then all goes well.

    Args:
        own: whether it is a rank of the group that is lost; else it is a preprocessor.
    """

    def __init__(self, losses: int, own: bool) -> None:
        self.starts: list[Start] = []
        self._losses, self._own = losses, own
        self._events: list[Event] = []

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        self.starts += batch
        (start,) = batch
        if len(self.starts) > self._losses:
            self._events.append(GroupEnded(start.job, start.devices, "done", "epochs", 3, 0))
        else:
            gone = start.devices if self._own else ()
            self._events.append(RanksGone((7,), ("n0",), gone, all_leave=not self._own))
            self._events.append(GroupEnded(start.job, start.devices, "lost", "", start.epoch, start.step))
        return (Started(start.job, 0, "data/0"),)

    def stop(self, job: str, why: StopReason) -> None:
        """Its end is already on its way."""

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        raise AssertionError("all jobs have rates")

    def save_held(self) -> bool:
        return False

    def next_event(self, timeout: float) -> Event | None:
        return self._events.pop(0)


def trained(
    losses: int, stands: Callable[[str], Standing], own: bool = True
) -> tuple[Losing, LiveState, list[dict[str, Any]]]:
    """A job whose group is lost so many times: what was started, the books, and the journal's events."""
    events: list[dict[str, Any]] = []
    journal = Journal(None, lambda: 0.0)
    journal.listen(lambda event: events.append(as_json(event)))
    books = LiveState(Cluster((8,)), [JobRecord.of(JobState("a", RateCurve({1: 10.0}, 8), 1), "data/0")], seed=0)
    machine = Losing(losses, own)
    outside = RunHooks()
    outside.stands = stands  # type: ignore[method-assign,assignment]
    Coordinator(policy("baseline"), machine, Recorder(books, journal), outside, math.inf, math.inf).run()
    return machine, books, events


def test_it_goes_on_from_its_newest_checkpoint_though_nobody_had_told_of_it() -> None:
    machine, books, events = trained(1, lambda job: HALF_WAY)
    assert [(start.epoch, start.step, start.resume) for start in machine.starts] == [(0, 0, False), (2, 5, True)]
    assert books.jobs["a"].status == "done"
    (stopped,) = (event for event in events if event["event"] == "stopped")
    assert (stopped["epoch"], stopped["step"], stopped["why"]) == (2, 5, "lost")


def test_one_that_was_done_is_not_trained_further() -> None:
    machine, books, events = trained(1, lambda job: DONE)
    assert len(machine.starts) == 1
    (done,) = (event for event in events if event["event"] == "done")
    assert (done["epoch"], done["why"], done["metrics"], done["checkpoint"]) == (3, "epochs", {"loss": 0.25}, DONE.path)
    assert (books.jobs["a"].status, books.jobs["a"].checkpoint) == ("done", DONE.path)


def test_one_that_costs_one_rank_after_the_other_has_failed() -> None:
    machine, books, _ = trained(MOST_LOSSES + 1, lambda job: Standing())
    assert len(machine.starts) == MOST_LOSSES + 1
    assert books.jobs["a"].status == "failed" and "times in a row a rank was lost" in str(books.jobs["a"].error)


def test_one_that_loses_its_samples_again_and_again_goes_on() -> None:
    machine, books, _ = trained(MOST_LOSSES + 2, lambda job: Standing(), own=False)
    assert len(machine.starts) == MOST_LOSSES + 3 and books.jobs["a"].status == "done"
