"""Reads a journal into a `RunHistory`: several sessions, a torn last line, epochs that were trained again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleet.report.line_values import by_integer, integers_of, makers_of, metrics_of, number_of, seconds_of
from fleet.report.promises import Promises
from fleet.report.records import (
    CheckpointFile,
    DeviceSpan,
    Epoch,
    FittedRates,
    Preprocessing,
    RecordedFailure,
    RecordedJob,
    RecordedMeasurement,
    RecordedOutcome,
    RecordedRank,
    RecordedRound,
    RecordedSession,
    RecordedSkip,
    RunHistory,
    SessionCluster,
    Waited,
    Warned,
)
from fleet.report.wording import broken_service
from fleet.run_directory.energy_totals import EnergyTotals
from fleet.run_directory.journal import JournalLine, read_journal
from fleet.run_directory.metric_order import Comparing
from fleet.run_directory.sample_counts import SampleCounts


def read_history(journal: Path) -> RunHistory:
    """Read `journal`; a torn last line is ignored, a missing file is an empty history."""
    return build_history(read_journal(journal))


def build_history(events: Iterable[JournalLine]) -> RunHistory:
    """The history that `events`, in their order, tell; unknown kinds of event are passed over."""
    reader = _Reader()
    for event in events:
        reader.read(event)
    return reader.finish()


@dataclass
class _OpenGroup:
    """A group that still trains."""

    job: str
    devices: tuple[int, ...]
    start: float
    round: int
    reforming: float
    epochs: list[int] = field(default_factory=list)


@dataclass
class _OpenRound:
    session: int
    number: int
    start: float
    allocation: dict[str, tuple[int, ...]] = field(default_factory=dict)
    paces: dict[str, float] = field(default_factory=dict)
    planning: float = 0.0
    bounds: tuple[float, float] | None = None
    bound: float | None = None
    expected: float | None = None
    working: int | None = None
    demand: float | None = None


class _Reader:
    """Folds events, one method for each kind."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sessions: list[RecordedSession] = []
        self._jobs: dict[str, RecordedJob] = {}
        self._rounds: dict[tuple[int, int], _OpenRound] = {}
        self._groups: dict[str, _OpenGroup] = {}
        self._spans: list[DeviceSpan] = []
        self._epochs: dict[tuple[str, int], Epoch] = {}
        self._superseded: list[Epoch] = []
        self._checkpoints: list[CheckpointFile] = []
        self._rates: list[FittedRates] = []
        self._measurements, self._timings = list[RecordedMeasurement](), list[RecordedMeasurement]()
        self._preprocessing: Preprocessing | None = None
        self._outcomes: dict[str, RecordedOutcome] = {}
        self._failures: list[RecordedFailure] = []
        self._warnings: list[Warned] = []
        self._promises, self._comparing = Promises(), Comparing()
        self._skipped_samples: list[RecordedSkip] = []
        self._sample_counts, self._energy = SampleCounts(), EnergyTotals()
        self._ensemble: dict[str, float] = {}
        self._kinds = {
            "cluster": self._cluster,
            "prices": self._prices,
            "job": self._job,
            "profile": self._profile,
            "timed": self._timed,
            "preprocessors": self._preprocessors,
            "preprocessing": self._preprocessing_of_round,
            "rates": self._fitted,
            "planned": self._planned,
            "started": self._started,
            "epoch": self._epoch,
            "checkpoint": self._checkpoint,
            **dict.fromkeys(("stopped", "paused"), self._stopped),
            "pruned": self._pruned,
            "withdrawn": self._withdrawn,
            **dict.fromkeys(("halted", "taken_up"), self._by_name),
            "done": self._done,
            "failed": self._failed,
            "round_end": self._round_end,
            "warning": self._warning,
            "service_window": self._service_window,
            "lost": self._lost,
            "skipped": self._skipped,
            "samples": self._samples,
            "energy": self._energy_used,
            "ended": self._ended,
        }

    def read(self, event: JournalLine) -> None:
        """Take one event."""
        kind = event.get("event")
        time = number_of(event.get("t"))
        if kind == "session" or not self._sessions:
            self._open_session(event if kind == "session" else {}, self._now if time is None else time)
        self._comparing.read(event)
        self._now = max(self._now, self._now if time is None else time)
        self._sessions[-1] = replace(self._sessions[-1], end=self._now)
        if kind in self._kinds:
            self._kinds[kind](event)
        if told := self._promises.told(event):
            self._warnings.append(Warned(told, self._named(event), self._now))

    def finish(self) -> RunHistory:
        """The history so far; all that is still open ends now."""
        self._cut_groups()
        return RunHistory(
            sessions=tuple(self._sessions),
            jobs=self._jobs,
            rounds=tuple(self._close_round(key) for key in sorted(self._rounds)),
            spans=tuple(self._spans),
            epochs=tuple(self._epochs.values()),
            superseded=tuple(self._superseded),
            checkpoints=tuple(self._checkpoints),
            rates=tuple(self._rates),
            measurements=tuple(self._measurements),
            timings=tuple(self._timings),
            preprocessing=self._preprocessing,
            outcomes=self._outcomes,
            failures=tuple(self._failures),
            warnings=tuple(self._warnings),
            skipped=tuple(self._skipped_samples),
            samples=self._sample_counts,
            energy=self._energy,
            ensemble=self._ensemble,
            comparing=self._comparing,
        )

    def _open_session(self, event: JournalLine, start: float) -> None:
        self._cut_groups()
        self._stop_running()
        rehearsal = event.get("rehearsal") or {}
        self._sessions.append(
            RecordedSession(
                index=len(self._sessions),
                start=start,
                end=start,
                fleet=str(event.get("fleet", "")),
                host=str(event.get("host", "")),
                spec_hash=str(event.get("spec_hash", "")),
                name=str(event.get("name", "")),
                versions={str(name): str(text) for name, text in (event.get("versions") or {}).items()},
                policy=str(event.get("policy", "")),
                policy_parameters=dict(event.get("policy_parameters") or {}),
                time_scale=number_of(rehearsal.get("time_scale")),
                reduce=str(event.get("reduce", "")),
            )
        )

    def _cluster(self, event: JournalLine) -> None:
        ranks = tuple(_rank(rank) for rank in event.get("ranks", ()))
        members = int(event.get("members_per_device") or 1)
        cluster = SessionCluster(ranks, integers_of(event.get("devices_per_node", ())), members)
        self._sessions[-1] = replace(self._sessions[-1], cluster=cluster)

    def _prices(self, event: JournalLine) -> None:
        told = {str(kind): tuple((float(s), float(p)) for s, p in course) for kind, course in event["courses"].items()}
        self._sessions[-1] = replace(self._sessions[-1], prices=told)

    def _job(self, event: JournalLine) -> None:
        whole = ("parameters", "parameter_bytes", "virtual_workers", "batch_size", "seed", "samples", "max_epochs")
        self._jobs[str(event["job"])] = RecordedJob(
            name=str(event["job"]),
            model=str(event.get("model", "")),
            data=str(event.get("data", "")),
            **{key: None if event.get(key) is None else int(event[key]) for key in whole},
        )

    def _profile(self, event: JournalLine) -> None:
        self._measurements.append(self._measurement(event))

    def _timed(self, event: JournalLine) -> None:
        self._timings.append(self._measurement(event))

    def _measurement(self, event: JournalLine) -> RecordedMeasurement:
        job, devices = self._named(event), integers_of(event.get("devices", ()))
        count, rate = int(event.get("count", len(devices))), number_of(event.get("rate")) or 0.0
        return RecordedMeasurement(job, devices, count, rate, seconds_of(event), self._now)

    def _preprocessors(self, event: JournalLine) -> None:
        chosen = event.get("chosen")
        self._preprocessing = Preprocessing(
            counts=by_integer(event.get("counts")),
            demand=number_of(event.get("demand")),
            chosen=None if chosen is None else int(chosen),
        )

    def _preprocessing_of_round(self, event: JournalLine) -> None:
        flotilla = self._round(event)
        flotilla.working, flotilla.demand = makers_of(event), number_of(event.get("demand"))

    def _fitted(self, event: JournalLine) -> None:
        fitted = tuple(number_of(rate) or 0.0 for rate in event.get("fitted", ()))
        measured = by_integer(event.get("measured"))
        self._rates.append(FittedRates(self._named(event), str(event.get("source", "")), measured, fitted))

    def _planned(self, event: JournalLine) -> None:
        flotilla = self._round(event)
        flotilla.allocation.update({str(job): integers_of(d) for job, d in (event.get("allocation") or {}).items()})
        flotilla.paces.update({str(job): float(pace) for job, pace in (event.get("paces") or {}).items()})
        flotilla.planning += seconds_of(event)
        flotilla.bound, flotilla.expected = number_of(event.get("bound_seconds")), number_of(event.get("end_seconds"))

    def _started(self, event: JournalLine) -> None:
        job, seconds = self._named(event), seconds_of(event)
        self._close_group(job, self._now - seconds, "cut")
        devices, number = integers_of(event.get("devices", ())), self._round(event).number
        self._groups[job] = _OpenGroup(job, devices, self._now, number, seconds)
        self._outcomes[job] = RecordedOutcome(job, "running", self._now)

    def _epoch(self, event: JournalLine) -> None:
        epoch = self._read_epoch(event)
        earlier = self._epochs.pop((epoch.job, epoch.epoch), None)
        if earlier is not None:
            self._superseded.append(earlier)
        self._epochs[epoch.job, epoch.epoch] = epoch
        if epoch.job in self._groups:
            self._groups[epoch.job].epochs.append(epoch.epoch)

    def _read_epoch(self, event: JournalLine) -> Epoch:
        waited = event.get("waited") or {}
        return Epoch(
            job=self._named(event),
            epoch=int(event.get("epoch", 0)),
            step=int(event.get("step", 0)),
            time=self._now,
            seconds=seconds_of(event),
            rate=number_of(event.get("rate")),
            devices=integers_of(event.get("devices", ())),
            round=self._round(event).number,
            session=self._sessions[-1].index,
            metrics=metrics_of(event),
            learning_rate=number_of(event.get("learning_rate")),
            waited={int(d): Waited(float(w.get("data", 0.0)), float(w.get("peers", 0.0))) for d, w in waited.items()},
            computed=by_integer(event.get("computed")),
        )

    def _checkpoint(self, event: JournalLine) -> None:
        epoch, step, size = (int(event.get(key) or 0) for key in ("epoch", "step", "bytes"))
        path, job = str(event.get("path", "")), self._named(event)
        self._checkpoints.append(CheckpointFile(job, epoch, step, self._now, path, size, seconds_of(event)))

    def _stopped(self, event: JournalLine) -> None:
        self._leave(event, str(event["event"]), why=str(event.get("why", "")))

    def _pruned(self, event: JournalLine) -> None:
        self._leave(event, "stopped", why="pruned")

    def _withdrawn(self, event: JournalLine) -> None:
        """Epochs that were trained for nothing took time, and are no longer of the job."""
        job, epoch = self._named(event), int(event.get("epoch") or 0)
        gone = [key for key in self._epochs if key[0] == job and key[1] > epoch]
        self._superseded += [self._epochs.pop(key) for key in gone]
        self._outcomes[job] = RecordedOutcome(job, "stopped", self._now, metrics=metrics_of(event))

    def _by_name(self, event: JournalLine) -> None:
        self._leave(event, "stopped", why="asked" if event["event"] == "halted" else "")

    def _done(self, event: JournalLine) -> None:
        checkpoint = str(event.get("checkpoint") or "")
        self._leave(event, "done", why=str(event.get("why", "")), metrics=metrics_of(event), checkpoint=checkpoint)

    def _failed(self, event: JournalLine) -> None:
        error, traceback = str(event.get("error", "")), str(event.get("traceback") or "")
        self._leave(event, "failed", why=error)
        epoch = event.get("epoch")
        job = self._named(event)
        self._failures.append(RecordedFailure(job, self._now, None if epoch is None else int(epoch), error, traceback))

    def _leave(self, event: JournalLine, status: str, **keys: Any) -> None:
        job = self._named(event)
        self._close_group(job, self._now, status)
        self._outcomes[job] = RecordedOutcome(job, status, self._now, **keys)

    def _round_end(self, event: JournalLine) -> None:
        start, end = number_of(event.get("start")), number_of(event.get("end"))
        if start is not None and end is not None:
            self._round(event).bounds = (start, end)

    def _warning(self, event: JournalLine) -> None:
        job = None if event.get("job") is None else str(event["job"])
        self._warnings.append(Warned(str(event.get("text", "")), job, self._now))

    def _service_window(self, event: JournalLine) -> None:
        if event["broken"]:
            told = [float(event[key]) for key in ("promised", "had", "begin", "end")]
            self._warnings.append(Warned(broken_service(*told), self._named(event), self._now))

    def _lost(self, event: JournalLine) -> None:
        ranks, hosts = (", ".join(map(str, event.get(key) or ())) for key in ("ranks", "hosts"))
        self._warnings.append(Warned(f"rank {ranks} on {hosts} was lost; the others went on", None, self._now))

    def _skipped(self, event: JournalLine) -> None:
        sample, substitute, epoch = (int(event.get(key) or 0) for key in ("sample", "substitute", "epoch"))
        data, kind, reason = (str(event.get(key, "")) for key in ("data", "kind", "reason"))
        self._skipped_samples.append(RecordedSkip(data, kind, sample, substitute, epoch, reason, self._now))

    def _samples(self, event: JournalLine) -> None:
        self._sample_counts = self._sample_counts.plus(event["read"], event["laid"], event["made"])

    def _energy_used(self, event: JournalLine) -> None:
        self._energy = self._energy.plus(event)

    def _ended(self, event: JournalLine) -> None:
        seconds = {str(name): float(value) for name, value in (event.get("overhead_seconds") or {}).items()}
        end, status = max(self._now, number_of(event.get("wall_seconds")) or 0.0), str(event.get("status", "done"))
        self._sessions[-1] = replace(self._sessions[-1], end=end, status=status, overheads=seconds or None)
        self._ensemble = dict(event.get("ensemble") or {})
        self._stop_running()

    def _named(self, event: JournalLine) -> str:
        """The event's job, made known if no job event came before."""
        name = str(event.get("job", ""))
        return self._jobs.setdefault(name, RecordedJob(name)).name

    def _round(self, event: JournalLine) -> _OpenRound:
        key = (self._sessions[-1].index, int(event.get("round") or 0))
        return self._rounds.setdefault(key, _OpenRound(*key, start=self._now))

    def _close_group(self, job: str, end: float, outcome: str) -> None:
        group = self._groups.pop(job, None)
        if group is None:
            return
        session, epochs, end = self._sessions[-1].index, tuple(group.epochs), max(end, group.start)
        self._spans.extend(
            DeviceSpan(device, job, group.start, end, group.round, session, epochs, group.reforming, outcome)
            for device in group.devices
        )

    def _cut_groups(self) -> None:
        for job in list(self._groups):
            self._close_group(job, self._now, "cut")

    def _stop_running(self) -> None:
        for job, outcome in self._outcomes.items():
            if outcome.status == "running":
                self._outcomes[job] = replace(outcome, status="stopped", time=self._now)

    def _close_round(self, key: tuple[int, int]) -> RecordedRound:
        flotilla = self._rounds[key]
        ends = [span.end for span in self._spans if (span.session, span.round) == key]
        start, end = flotilla.bounds or (flotilla.start, max(ends, default=flotilla.start))
        return RecordedRound(
            *key, start, end, flotilla.allocation, flotilla.paces, flotilla.planning, flotilla.bound, flotilla.expected,
            flotilla.working, flotilla.demand,
        )  # fmt: skip


def _rank(event: JournalLine) -> RecordedRank:
    device, name, kind = (event.get(key) for key in ("device", "device_name", "kind"))
    return RecordedRank(
        rank=int(event.get("rank", 0)),
        node=int(event.get("node", 0)),
        host=str(event.get("host", "")),
        role=str(event.get("role", "")),
        device=None if device is None else int(device),
        device_name=None if name is None else str(name),
        kind=None if kind is None else str(kind),
        cores=integers_of(event.get("cores") or ()),
    )
