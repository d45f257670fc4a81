"""The account of a run as a whole: its sessions, what it spent besides training, the samples and the energy."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.coordination.lent_trainers import LentTrainers
from fleet.coordination.stop_time import StopTime
from fleet.journal.events import Best, Energy
from fleet.journal.state import EnergyTotals, SampleCounts
from fleet.scheduling.model.data_path import DataPath
from fleet.scheduling.model.lending import NONE, Lending


class RunAccount:
    """Mutable, but only by what happened: each method is named after an event.

    Attributes:
        sessions: how many began.
        is_over: whether the last one ended in good order.
        overhead: seconds that were spent on something else than training, by what it was.
        samples, energy: all sessions used so much.
        data_path: what preprocessors can make; None: nobody knows.
        lent: trainers that prepare samples.
        bests: job -> its best checkpoint that is kept; None: none is.
    """

    def __init__(self, lending: Lending = NONE) -> None:
        self.sessions, self.is_over = 0, False
        self.overhead = {"profiling": 0.0, "scheduling": 0.0, "checkpoint": 0.0, "reforming": 0.0}
        self.samples, self.energy = SampleCounts(), EnergyTotals()
        self.data_path: DataPath | None = None
        self.lent = LentTrainers(lending)
        self.bests: dict[str, Best | None] = {}
        self._stop_time = StopTime()

    def session_began(self) -> None:
        """One session more goes on with the run."""
        self.sessions, self.is_over = self.sessions + 1, False

    def charged(self, kind: str, seconds: float) -> None:
        """The run spent so many seconds on something else than training."""
        self.overhead[kind] += seconds

    def samples_counted(self, counts: SampleCounts) -> None:
        """A session read, laid and made so many samples."""
        self.samples = self.samples.plus(counts.read, counts.laid, counts.made)

    def preprocessors_measured(self, path: DataPath | None) -> None:
        """It is known how fast preprocessors are; None: nothing was measured."""
        self.data_path = path or self.data_path

    def energy_read(self, told: Energy) -> None:
        """Hosts used energy since they were last read."""
        self.energy = self.energy.plus(told)

    def best_kept(self, job: str, best: Best | None) -> None:
        """A job's best checkpoint is this one from now on; None: it keeps none."""
        self.bests[job] = best

    def epoch_took(self, job: str, beside: float) -> None:
        """A job's epoch took so many seconds beside its steps."""
        self._stop_time.ended_epoch(job, beside)

    def was_deaf(self, job: str, seconds: float) -> None:
        """A job heard of no wish for so long in its last epoch."""
        self._stop_time.deaf[job] = seconds

    def ended(self, overhead: Mapping[str, float]) -> None:
        """The session ended in good order, with these seconds spent on something else than training."""
        self.overhead.update(overhead)
        self.is_over = True
