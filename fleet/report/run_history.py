"""What a journal tells of a run from its first second on: several sessions, epochs that were trained again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.journal import events
from fleet.journal.journal import read_journal
from fleet.journal.state import JobState, RunState
from fleet.report.event_messages import promise_text
from fleet.report.wording import broken_service


@dataclass
class Round:
    """One flotilla: its allocation, and when it began and ended (seconds of the run).

    `bound` and `expected` are the policy's, if it computed them: no schedule ends all jobs before the first, and the
    policy expected to end them at the second. `working` of the preprocessors made samples, for a `demand` of so many
    samples per second; None where it was not chosen.
    """

    session: int
    number: int
    start: float
    end: float
    allocation: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    paces: Mapping[str, float] = field(default_factory=dict)
    planning_seconds: float = 0.0
    bound: float | None = None
    expected: float | None = None
    working: int | None = None
    demand: float | None = None


@dataclass(frozen=True)
class DeviceSpan:
    """One device under one job, from the forming of the group until it left the device.

    `reforming` is the cost of forming the group (seconds before `start`); `outcome` is done, stopped, failed or cut
    (the session ended first, or the journal was read while the job ran).
    """

    device: int
    job: str
    start: float
    end: float
    round: int
    session: int
    epochs: tuple[int, ...]
    reforming: float
    outcome: str

    @property
    def seconds(self) -> float:
        """How long the device was held."""
        return self.end - self.start


@dataclass(frozen=True)
class _Group:
    """A group that still trains."""

    devices: tuple[int, ...]
    start: float
    round: int
    reforming: float
    epochs: list[int] = field(default_factory=list)


class RunHistory(RunState):
    """All that a journal says of a run, beside where it stands.

    Attributes:
        epochs: the valid one of each (job, epoch); `superseded`: those which a later session trained again.
        measurements: of the profiler; `timings`: of first steps in training.
        warnings: with what is told of promises.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[DeviceSpan] = []
        self.superseded: list[events.Epoch] = []
        self.checkpoints: list[events.Checkpoint] = []
        self.rates: list[events.Rates] = []
        self.measurements: list[events.Profile] = []
        self.timings: list[events.Timed] = []
        self.preprocessing: events.Preprocessors | None = None
        self.failures: list[events.Failed] = []
        self.warnings: list[events.Warned] = []
        self.skipped: list[events.Skipped] = []
        self._epochs: dict[tuple[str, int], events.Epoch] = {}
        self._rounds: dict[tuple[int, int], Round] = {}
        self._told_rounds: set[tuple[int, int]] = set()  # whose begin and end an event told
        self._groups: dict[str, _Group] = {}

    # what it tells

    @property
    def epochs(self) -> tuple[events.Epoch, ...]:
        return tuple(self._epochs.values())

    @property
    def rounds(self) -> tuple[Round, ...]:
        return tuple(self._rounds[key] for key in sorted(self._rounds))

    @property
    def wall(self) -> float:
        """Seconds of all sessions together."""
        return self.session.end if self.sessions else 0.0

    @property
    def status(self) -> str:
        """done, failed or stopped as the last session said at its end; unfinished if it said nothing."""
        ended = self.session.ended if self.sessions else None
        return "unfinished" if ended is None else ended.status

    @property
    def ensemble(self) -> Mapping[str, float]:
        """The figures of all networks together, if the last session that ended told any."""
        ended = [session.ended for session in self.sessions if session.ended is not None]
        return (ended[-1].ensemble or {}) if ended else {}

    @property
    def cluster(self) -> events.Cluster | None:
        """The latest machine that is known."""
        return next((s.cluster for s in reversed(self.sessions) if s.cluster is not None), None)

    @property
    def devices(self) -> tuple[int, ...]:
        """Every device that any session had."""
        sizes = [session.cluster.size for session in self.sessions if session.cluster is not None]
        return tuple(sorted({*range(max(sizes, default=0)), *(span.device for span in self.spans)}))

    def epochs_of(self, job: str) -> tuple[events.Epoch, ...]:
        """The valid epochs of `job`, in order."""
        return tuple(
            sorted((epoch for epoch in self._epochs.values() if epoch.job == job), key=lambda each: each.epoch)
        )

    # what happens

    def take(self, event: events.Event) -> None:
        super().take(event)
        if self.promise and isinstance(event, (events.Late, events.Admitted, events.Done)):
            self._warn(promise_text(event, self), self.job(event.job).name)

    def _open_session(self, event: events.Session) -> None:
        self.cut_groups()
        super()._open_session(event)

    def on_profile(self, event: events.Profile) -> None:
        super().on_profile(event)
        self.measurements.append(event)

    def on_timed(self, event: events.Timed) -> None:
        self.timings.append(event)

    def on_preprocessors(self, event: events.Preprocessors) -> None:
        self.preprocessing = event

    def on_preprocessing(self, event: events.Preprocessing) -> None:
        flotilla = self._round(event.round)
        flotilla.working, flotilla.demand = event.working + len(event.trainers), event.demand

    def on_rates(self, event: events.Rates) -> None:
        self.job(event.job)
        self.rates.append(event)

    def on_planned(self, event: events.Planned) -> None:
        super().on_planned(event)
        flotilla = self._round(event.round)
        flotilla.allocation = {**flotilla.allocation, **event.allocation}
        flotilla.paces = {**flotilla.paces, **event.paces}
        flotilla.planning_seconds += event.seconds
        flotilla.bound, flotilla.expected = event.bound_seconds, event.end_seconds

    def on_started(self, event: events.Started) -> None:
        self._close_group(event.job, self.seconds - event.seconds, "cut")
        super().on_started(event)
        number = self._round(event.round).number
        self._groups[event.job] = _Group(event.devices, self.seconds, number, event.seconds)

    def on_epoch(self, event: events.Epoch) -> None:
        super().on_epoch(event)
        self._round(event.round)
        earlier = self._epochs.pop((event.job, event.epoch), None)
        if earlier is not None:
            self.superseded.append(earlier)
        self._epochs[event.job, event.epoch] = event
        if event.job in self._groups:
            self._groups[event.job].epochs.append(event.epoch)

    def on_checkpoint(self, event: events.Checkpoint) -> None:
        self.checkpoints.append(event)

    def on_withdrawn(self, event: events.Withdrawn) -> None:
        """Epochs that were trained for nothing took time, and are no longer of the job."""
        super().on_withdrawn(event)
        gone = [key for key in self._epochs if key[0] == event.job and key[1] > event.epoch]
        self.superseded += [self._epochs.pop(key) for key in gone]

    def on_failed(self, event: events.Failed) -> None:
        super().on_failed(event)
        self.failures.append(event)

    def on_round_end(self, event: events.RoundEnded) -> None:
        if event.start is not None and event.end is not None:
            flotilla = self._round(event.round)
            flotilla.start, flotilla.end = event.start, event.end
            self._told_rounds.add((flotilla.session, flotilla.number))

    def on_warning(self, event: events.Warned) -> None:
        self.warnings.append(event)

    def on_service_window(self, event: events.ServiceWindow) -> None:
        if event.broken:
            self._warn(broken_service(event.promised, event.had, event.begin, event.end), event.job)

    def on_lost(self, event: events.RanksLost) -> None:
        ranks = ", ".join(map(str, event.ranks))
        self._warn(f"rank {ranks} on {', '.join(event.hosts)} was lost; the others went on", None)

    def on_skipped(self, event: events.Skipped) -> None:
        self.skipped.append(event)

    def on_ended(self, event: events.Ended) -> None:
        self.cut_groups()
        super().on_ended(event)

    def cut_groups(self) -> None:
        """All groups that still train are cut here."""
        for job in list(self._groups):
            self._close_group(job, self.seconds, "cut")

    def _become(self, job: JobState, status: str, why: str = "") -> None:
        self._close_group(job.name, self.seconds, status)
        super()._become(job, status, why)

    def _warn(self, text: str, job: str | None) -> None:
        self.warnings.append(events.Warned(t=self.seconds, text=text, job=job))

    def _round(self, number: int | None) -> Round:
        key = (self.session.index, number or 0)
        return self._rounds.setdefault(key, Round(*key, start=self.seconds, end=self.seconds))

    def _close_group(self, job: str, end: float, outcome: str) -> None:
        group = self._groups.pop(job, None)
        if group is None:
            return
        session, epochs, end = self.session.index, tuple(group.epochs), max(end, group.start)
        self.spans.extend(
            DeviceSpan(device, job, group.start, end, group.round, session, epochs, group.reforming, outcome)
            for device in group.devices
        )
        if (session, group.round) not in self._told_rounds:
            flotilla = self._rounds[session, group.round]
            flotilla.end = max(flotilla.end, end)


def read_history(journal: Path) -> RunHistory:
    """Read `journal`; a torn last line is ignored, a missing file is an empty history."""
    return build_history(read_journal(journal))


def build_history(told: Iterable[events.Event]) -> RunHistory:
    """The history that events, in their order, tell; all that is still open then ends there."""
    history = RunHistory()
    for event in told:
        history.take(event)
    history.cut_groups()
    return history
