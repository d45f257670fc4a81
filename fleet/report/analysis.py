"""Figures of a run, computed from its history: flotillas, results, rates, overheads, devices' seconds, costs.

The tables are those of FLEET (MLSys'20): balance of flotillas (Table 3), overheads (Table 4), waiting (Figure 6).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any

from fleet.journal.events import Epoch, Failed
from fleet.journal.metric_order import Undeclared
from fleet.journal.state import JobState, SessionState
from fleet.report.run_history import DeviceSpan, Round, RunHistory


@dataclass(kw_only=True)
class FlotillaRow(Round):
    """One row of the table; times in seconds; `deviation` is the population's standard deviation over its jobs.

    `lengths` says how long each job ran in this flotilla. Jobs that only were planned (the run was cut first) have
    no length, and a flotilla without any length has mean and deviation None.
    """

    label: str
    lengths: Mapping[str, float]
    mean: float | None
    deviation: float | None

    @property
    def gap(self) -> float | None:
        """How far after the bound the policy expected to end, as a share of the bound; None: they are not known."""
        return self.expected / self.bound - 1 if self.bound and self.expected is not None else None

    @property
    def devices(self) -> tuple[int, ...]:
        """All devices of the flotilla."""
        return tuple(sorted({device for devices in self.allocation.values() for device in devices}))


def flotillas(history: RunHistory) -> tuple[FlotillaRow, ...]:
    """The flotillas of the run, in order; a number that came back in a later session is labelled with its session."""
    spans: dict[tuple[int, int], list[DeviceSpan]] = defaultdict(list)
    for span in history.spans:
        spans[span.session, span.round].append(span)
    uses = Counter(flotilla.number for flotilla in history.rounds)
    order = {job: place for place, job in enumerate(history.jobs)}
    for group in spans.values():
        group.sort(key=lambda span: order[span.job])
    return tuple(_flotilla(r, spans[r.session, r.number], uses[r.number] > 1) for r in history.rounds)


def running_lengths(spans: list[DeviceSpan] | tuple[DeviceSpan, ...]) -> dict[str, float]:
    """Seconds that each job ran in `spans`; the devices of one group run at the same time and count once."""
    groups = {(span.job, span.start): span.seconds for span in spans}
    lengths: dict[str, float] = defaultdict(float)
    for (job, _), seconds in groups.items():
        lengths[job] += seconds
    return dict(lengths)


def _flotilla(flotilla: Round, spans: list[DeviceSpan], repeated: bool) -> FlotillaRow:
    lengths = running_lengths(spans)
    held: dict[str, list[int]] = defaultdict(list)
    for span in spans:
        if span.device not in held[span.job]:
            held[span.job].append(span.device)
    label = f"{flotilla.number} (session {flotilla.session})" if repeated else str(flotilla.number)
    allocation = {job: tuple(devices) for job, devices in held.items()} or flotilla.allocation
    return FlotillaRow(
        **vars(replace(flotilla, allocation=allocation)),
        label=label,
        lengths=lengths,
        mean=fmean(lengths.values()) if lengths else None,
        deviation=pstdev(lengths.values()) if lengths else None,
    )


@dataclass(frozen=True)
class JobResult:
    """One network; `status` is done, failed, running (its last word was that it trains), stopped, paused or pending."""

    job: JobState
    status: str
    epochs: int
    metrics: Mapping[str, float]
    device_seconds: float
    why: str
    checkpoint: str
    failure: Failed | None


@dataclass(frozen=True)
class BestNetwork:
    """The best network by one metric."""

    job: str
    metric: str
    value: float


def job_results(history: RunHistory) -> tuple[JobResult, ...]:
    """One result for each job, in the order of the spec."""
    seconds: dict[str, float] = defaultdict(float)
    for span in history.spans:
        seconds[span.job] += span.seconds
    return tuple(_result(history, job, seconds[job.name]) for job in history.jobs.values())


def best_network(history: RunHistory) -> BestNetwork | None:
    """The best network, as `fleet best` has it; None: no network has a finite value. Failed ones are out."""
    rows = [(each.job, each.metrics) for each in sorted(history.epochs, key=lambda each: each.epoch)]
    told = {job for job, _ in rows}
    rows += [(job.name, job.result) for job in history.jobs.values() if job.name not in told]
    values: dict[str, list[float | None]] = {}
    metric = history.comparing.metric(dict.fromkeys(name for _, metrics in rows for name in metrics))
    for job, metrics in rows:
        value = metrics.get(metric, math.nan)
        values.setdefault(job, []).append(value if math.isfinite(value) else None)
    try:
        order = history.comparing.order(metric)
    except Undeclared:
        return None
    found = {job: best for job in history.jobs if (best := order.value(values.get(job, ()))) is not None}
    usable = [job for job in found if history.jobs[job].status != "failed"]
    ranked = order.ranked(usable, lambda job: found[job][0])
    return BestNetwork(ranked[0], metric, found[ranked[0]][0]) if ranked else None


def metric_names(results: tuple[JobResult, ...]) -> tuple[str, ...]:
    """Every metric that any job has: accuracy first, then the losses, then the others as they came."""
    names = dict.fromkeys(name for result in results for name in result.metrics)
    first = [name for name in ("accuracy", "test_loss", "loss") if name in names]
    return (*first, *(name for name in names if name not in first))


def _result(history: RunHistory, job: JobState, device_seconds: float) -> JobResult:
    epochs = history.epochs_of(job.name)
    return JobResult(
        job=job,
        status=job.status,
        epochs=len(epochs),
        metrics={**(epochs[-1].metrics if epochs else {}), **job.result},
        device_seconds=device_seconds,
        why=job.why,
        checkpoint=job.checkpoint or _last_checkpoint(history, job.name),
        failure=_failure(history, job.name) if job.status == "failed" else None,
    )


def _last_checkpoint(history: RunHistory, job: str) -> str:
    return next((file.path for file in reversed(history.checkpoints) if file.job == job), "")


def _failure(history: RunHistory, job: str) -> Failed | None:
    return next((failure for failure in reversed(history.failures) if failure.job == job), None)


@dataclass(frozen=True)
class JobRates:
    """The rates of one job in samples per second, by number of devices.

    profiled: measured by the profiler or read from a file. trained: the mean of the epochs trained on that many
    devices, or its first steps there where it ended none; where jobs share a stream this is the pace of the slowest, so
    it may lie below the curve.
    fitted: the curve that the policy used last.
    """

    job: str
    profiled: Mapping[int, float]
    trained: Mapping[int, float]
    fitted: Mapping[int, float]

    def difference(self, devices: int) -> float | None:
        """(measured - fitted) / fitted; measured while training where that is known, else by the profiler."""
        measured, fitted = self.trained.get(devices, self.profiled.get(devices)), self.fitted.get(devices)
        return (measured - fitted) / fitted if measured is not None and fitted else None


def job_rates(history: RunHistory) -> tuple[JobRates, ...]:
    """The rates of every job of which any is known, in the order of the spec."""
    rows = (_rates(history, name) for name in history.jobs)
    return tuple(row for row in rows if row.profiled or row.trained or row.fitted)


def _rates(history: RunHistory, job: str) -> JobRates:
    profiled: dict[int, float] = {}
    fitted: dict[int, float] = {}
    for curve in (curve for curve in history.rates if curve.job == job):
        if curve.source not in ("training", "guessed"):
            profiled.update(curve.measured)
        fitted = dict(enumerate(curve.fitted, start=1)) or fitted
    profiled.update({m.count: m.rate for m in history.measurements if m.job == job})
    return JobRates(job, dict(sorted(profiled.items())), _trained(history, job), fitted)


def _trained(history: RunHistory, job: str) -> dict[int, float]:
    rates: dict[int, list[float]] = defaultdict(list)
    for epoch in history.epochs_of(job):
        if epoch.rate is not None and epoch.devices:
            rates[len(epoch.devices)].append(epoch.rate)
    timed = {m.count: m.rate for m in history.timings if m.job == job}
    return dict(sorted({**timed, **{count: fmean(values) for count, values in rates.items()}}.items()))


_NAMES = ("scheduling", "profiling", "checkpoint", "reforming")


@dataclass(frozen=True)
class Overhead:
    """One kind of overhead: seconds, their share of the wall time in percent, and how often it came."""

    name: str
    seconds: float
    percent: float
    count: int


def overheads(history: RunHistory) -> tuple[Overhead, ...]:
    """Scheduling, profiling, checkpoint and reforming, then whatever else the run named at its end.

    The totals that the run wrote at its end are taken where it wrote them; a run that was cut is added up from its
    events: checkpoints and re-forming over all groups, profiling by the wall (measurements beside each other count
    once).
    """
    counts = {
        "scheduling": len(history.rounds),
        "profiling": len(history.measurements) + len(history.timings),
        "checkpoint": len(history.checkpoints),
        "reforming": len({(span.job, span.start) for span in history.spans}),
    }
    seconds = _from_events(history)
    if history.sessions and history.session.ended is not None:
        seconds.update(history.session.ended.overhead_seconds)
    wall = history.wall
    return tuple(
        Overhead(name, value, 100.0 * value / wall if wall > 0 else 0.0, counts.get(name, 0))
        for name, value in seconds.items()
    )


def _from_events(history: RunHistory) -> dict[str, float]:
    groups = {(span.job, span.start): span.reforming for span in history.spans}
    profiled = _covered((m.t - m.seconds, m.t) for m in history.measurements)
    scheduling = sum(flotilla.planning_seconds for flotilla in history.rounds)
    checkpoint = sum(file.seconds for file in history.checkpoints)
    return dict(zip(_NAMES, (scheduling, profiled, checkpoint, sum(groups.values())), strict=True))


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of `intervals`."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


@dataclass(frozen=True)
class DeviceTime:
    """The seconds of one device: computing + waiting (idle, data, peers, reforming) + profiling + other = reserved.

    idle: no job held the device. data: for samples, or for the pace of the shared stream. peers: for the other
    trainers of the group. reforming: groups were being formed. other: evaluation, checkpoints, and epochs that were
    cut before they could say.
    """

    device: int
    reserved: float
    computing: float
    idle: float
    data: float
    peers: float
    reforming: float
    profiling: float
    other: float

    @property
    def waiting(self) -> float:
        """Seconds that the device was reserved and did nothing for anybody."""
        return self.idle + self.data + self.peers + self.reforming


def device_times(history: RunHistory) -> tuple[DeviceTime, ...]:
    """One row a device, in order; epochs that were trained again count with both their times."""
    spans: dict[int, list[DeviceSpan]] = defaultdict(list)
    for span in history.spans:
        spans[span.device].append(span)
    epochs = (*history.epochs, *history.superseded)
    return tuple(_device(history, device, spans[device], epochs) for device in history.devices)


def mean_waiting(times: tuple[DeviceTime, ...]) -> float:
    """Average waiting time of a device in seconds; 0 without devices."""
    return sum(time.waiting for time in times) / len(times) if times else 0.0


def _device(history: RunHistory, device: int, spans: list[DeviceSpan], epochs: tuple[Epoch, ...]) -> DeviceTime:
    reserved = _reserved(history, device)
    held = sum(span.seconds for span in spans)
    reforming = _reforming(history, spans)
    profiling = sum(m.seconds for m in history.measurements if device in m.devices)
    waits = [epoch.waited[device] for epoch in epochs if device in epoch.waited]
    data, peers = sum(wait.data for wait in waits), sum(wait.peers for wait in waits)
    computing = sum(epoch.computed.get(device, 0.0) for epoch in epochs)
    return DeviceTime(
        device=device,
        reserved=reserved,
        computing=computing,
        idle=max(0.0, reserved - held - reforming - profiling),
        data=data,
        peers=peers,
        reforming=reforming,
        profiling=profiling,
        other=max(0.0, held - computing - data - peers),
    )


def _reserved(history: RunHistory, device: int) -> float:
    """Seconds of the sessions which had this device; a session that names no machine had it."""
    sessions = (s for s in history.sessions if s.cluster is None or device < s.cluster.size)
    return sum(session.end - session.start for session in sessions)


def _reforming(history: RunHistory, spans: list[DeviceSpan]) -> float:
    """Seconds of forming groups; forming that overlapped the job before it (or the session's start) costs nothing."""
    seconds, session, free = 0.0, -1, 0.0
    for span in sorted(spans, key=lambda span: span.start):
        if span.session != session:
            session, free = span.session, history.sessions[span.session].start
        seconds += min(span.reforming, max(0.0, span.start - free))
        free = span.end
    return seconds


HOUR = 3600.0

Course = Sequence[tuple[float, float]]
"""(second of the run, price of a device-hour from then on), by second; the first is at 0."""


@dataclass(frozen=True)
class RunCosts:
    """In the unit of the prices.

    Attributes:
        jobs: by job, while its groups held devices, the forming counted.
        held: of all devices from each session's begin to its end, whoever used them.
    """

    jobs: Mapping[str, float]
    held: float

    @property
    def used(self) -> float:
        """The cost of all jobs together."""
        return sum(self.jobs.values())

    def to_json(self) -> dict[str, Any]:
        """Return the costs as run.json holds them."""
        return {"jobs": dict(self.jobs), "used": self.used, "held": self.held}


def run_costs(history: RunHistory) -> RunCosts | None:
    """The costs of all sessions that had prices; None: none had any."""
    priced = [session for session in history.sessions if session.prices]
    if not priced:
        return None
    devices = {session.index: _kinds(session) for session in priced}
    prices = {session.index: session.prices for session in priced}
    jobs = dict.fromkeys(history.jobs, 0.0)
    for span in history.spans:
        if span.session in prices:
            kind = devices[span.session].get(span.device, "")
            jobs[span.job] = jobs.get(span.job, 0.0) + device_cost(
                prices[span.session].get(kind, ()), span.start, span.end
            )
    held = sum(
        device_cost(session.prices.get(kind, ()), session.start, session.end)
        for session in priced
        for kind in devices[session.index].values()
    )
    return RunCosts(jobs, held)


def device_cost(course: Course, begin: float, end: float) -> float:
    """What a device of this price costs between two seconds of the run."""
    total = 0.0
    ends = [second for second, _ in course[1:]] + [math.inf]
    for (second, price), until in zip(course, ends):
        total += price * max(0.0, min(end, until) - max(begin, second)) / HOUR
    return total


def _kinds(session: SessionState) -> dict[int, str]:
    """Device -> its kind, "" where one price holds for all."""
    ranks = session.cluster.ranks if session.cluster is not None else ()
    alike = set(session.prices) == {""}
    return {rank.device: "" if alike else rank.kind or "" for rank in ranks if rank.device is not None}
