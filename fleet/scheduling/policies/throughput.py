"""Elastic scaling with variable batch size (Saxena et al., \"Effective elastic scaling of DL workloads\", 2020)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.jobs import JobState, Scaling
from fleet.scheduling.model.policy import Allocation, Plan, Policy, State, Trigger, check_flag
from fleet.scheduling.policies.fifo import WaitingLine

_CELLS = 2**20
"""Sums that are looked at together."""
_FEW = 32


@dataclass(frozen=True, eq=False)
class _Table:
    """The best sums of gains of some jobs, by the devices that they have together beyond their least.

    Attributes:
        gains: by 0, 1, 2, ... further devices, all of them used; -inf where that cannot be.
        parts: the two tables that it was joined from; None: it is of one job.
        right: for each entry how many of the devices go to the second part.
    """

    gains: Floats
    parts: tuple[_Table, _Table] | None = None
    right: npt.NDArray[np.int32] | None = None


def least_count(gains: Floats) -> int | None:
    """The fewest devices on which a job can run; None: there is no such number."""
    possible = gains > -np.inf
    return int(possible.argmax()) + 1 if possible.any() else None


def best_counts(gains: Sequence[Floats], devices: int) -> list[int] | None:
    """The counts k_j with the greatest sum of gains, each job with one device at least, together at most `devices`.

    Eq. 4: P(j, K) = max over k of P(j - 1, K - k) + T_j(k), kept over the devices beyond what the jobs need at least,
    for only these are there to be chosen. A row of the table is computed at once. The rows of n jobs that gain alike
    are joined by doubling, in about log2 n steps. Among equal sums the one with the fewest devices is taken.

    Args:
        gains: for each job, T_j on 1, 2, ..., k_max devices; -inf where it cannot run.
        devices: K.

    Returns:
        The counts, or None: infeasible, the jobs cannot all have devices at once.
    """
    alike: dict[bytes, list[int]] = {}
    for job, row in enumerate(gains):
        alike.setdefault(row.tobytes(), []).append(job)
    least = {key: least_count(gains[jobs[0]]) for key, jobs in alike.items()}
    spare = devices - sum((least[key] or 0) * len(jobs) for key, jobs in alike.items())
    if None in least.values() or spare < 0:
        return None
    counts = [0] * len(gains)
    order: list[int] = []
    whole: _Table | None = None
    for key, jobs in alike.items():
        for job in jobs:
            counts[job] = least[key] or 0
        further = _further(gains[jobs[0]], counts[jobs[0]])
        if len(further) > 1 and spare:
            order += jobs
            several = _several(_Table(further), len(jobs), spare)
            whole = several if whole is None else _joined(whole, several, spare)
    if whole is not None:
        for job, more in zip(order, _taken(whole, int(whole.gains[: spare + 1].argmax()))):
            counts[job] += more
    return counts


def _further(gains: Floats, least: int) -> Floats:
    """What devices beyond the least bring, up to the count with the greatest gain: none is given that loses."""
    beyond = gains[least - 1 :] - gains[least - 1]
    return beyond[: int(beyond.argmax()) + 1]


def _several(one: _Table, jobs: int, most: int) -> _Table:
    """The table of so many jobs that are all like this one."""
    whole: _Table | None = None
    while True:
        if jobs % 2:
            whole = one if whole is None else _joined(whole, one, most)
        jobs //= 2
        if not jobs:
            assert whole is not None
            return whole
        one = _joined(one, one, most)


def _joined(left: _Table, right: _Table, most: int) -> _Table:
    """The table of the jobs of both, on up to `most` further devices."""
    long, short = (left.gains, right.gains) if len(left.gains) >= len(right.gains) else (right.gains, left.gains)
    size, reach = min(len(long) + len(short) - 1, most + 1), len(short)
    padding = np.full(reach - 1, -np.inf)
    padded = np.concatenate((padding, long, padding))[: size + reach - 1]
    best, at = np.empty(size), np.empty(size, np.int32)
    columns = max(1, _CELLS // reach)
    for begin in range(0, size, columns):
        end = min(size, begin + columns)
        best[begin:end], at[begin:end] = _best_sums(padded[begin : end + reach - 1], short[::-1])
    of_short = reach - 1 - at
    to_right = of_short if short is right.gains else np.arange(size, dtype=np.int32) - of_short
    return _Table(best, (left, right), to_right)


def _best_sums(values: Floats, others: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    """For each i the greatest of values[i + t] + others[t] over t, and that t; whichever way numpy does it faster."""
    reach = len(others)
    step = values.itemsize
    windows: Floats = np.ndarray((len(values) - reach + 1, reach), values.dtype, values, 0, (step, step))
    if reach > _FEW:
        sums = windows + others
        at = sums.argmax(axis=1)
        return sums[np.arange(len(at)), at], at
    sums = np.add(windows.T, others[:, np.newaxis], order="C")
    best: Floats = sums.max(axis=0)
    return best, (sums == best).argmax(axis=0)


def _taken(table: _Table, devices: int) -> list[int]:
    """How many further devices each job of a table takes, in their order."""
    taken: list[int] = []
    open_ = [(table, devices)]
    while open_:
        table, devices = open_.pop()
        if table.parts is None or table.right is None:
            taken.append(devices)
        else:
            left, right = table.parts
            more = int(table.right[devices])
            open_ += [(right, more), (left, devices - more)]
    return taken


MODES = ("variable", "fixed", "max", "min")
"""What batches a job may have: all of its range, its own, or an end of the range."""
TRIED = 65
"""Batches of a range that are tried where each has to be asked for."""

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class BatchCurve:
    """A job's throughput scaling factor on 1, 2, ... devices, each with the batch that is best there.

    Attributes:
        factors: T_j(b_opt(k), k), Eq. 1; -inf where no batch will do; float64 of shape (limit,).
        batches: b_opt(k), samples of a step of the whole job, Eq. 2; 0 where none will do, or where it is not known.
    """

    factors: Floats
    batches: Counts

    @cached_property
    def least(self) -> int | None:
        """The fewest devices on which the job can run; None: there is no such number."""
        return least_count(self.factors)

    @cached_property
    def key(self) -> bytes:
        """A value that is equal for jobs that scale alike."""
        return self.factors.tobytes()


class AllReduceTimes:
    """t_comm(p, k), seconds in which k devices sum p weights, interpolated between measurements.

    One device takes none. Below the fewest measured weights, and beyond the most, the time is proportional to them.

    Args:
        weights: the measured numbers of weights, ascending, above 0.
        seconds: devices -> seconds for each of `weights`.

    Raises:
        ValueError: nothing measured, or numbers that no machine can show.
    """

    def __init__(self, weights: tuple[float, ...], seconds: Mapping[int, tuple[float, ...]]) -> None:
        if not weights or any(b <= a for a, b in zip((0.0, *weights), weights)):
            raise ValueError(f"weights are {weights}; they must be above 0, and ascend")
        for count, row in seconds.items():
            if count < 1 or len(row) != len(weights) or not all(math.isfinite(time) and time >= 0 for time in row):
                raise ValueError(f"{row} s on {count} devices; one time of 0 or more for each of the {weights} weights")
        self._weights = np.array((0.0, *weights))
        self._rows = {1: np.zeros(len(weights) + 1)} | {
            count: np.array((0.0, *row)) for count, row in sorted(seconds.items()) if count > 1
        }

    @property
    def limit(self) -> int:
        """Most devices that were measured."""
        return max(self._rows)

    def seconds(self, weights: float) -> Floats:
        """t_comm(weights, k) for k = 1 .. `limit`; shape (limit,)."""
        beyond = max(1.0, weights / float(self._weights[-1]))
        known = [float(np.interp(weights, self._weights, row)) * beyond for row in self._rows.values()]
        return np.interp(np.arange(1, self.limit + 1), list(self._rows), known)


@dataclass(frozen=True, eq=False)
class Scalability:
    """Rates of a job: T_j(b, k) = b / (t_proc(ceil(b / k)) + t_comm(p, k)), samples/s.

    t_proc is interpolated between measurements; below the smallest measured batch it stays as it is there. Where
    ceil(b / k) exceeds the largest measured batch, b_max, it does not fit on a device: the rate is 0. So it is where a
    device would have no sample, and on more devices than `reducing` was measured on.

    Args:
        processing: samples on one device -> seconds of an iteration, t_proc.
        weights: p, of the model.
        reducing: t_comm of the cluster.

    Raises:
        ValueError: nothing measured, or a number that no machine can show.
    """

    processing: Mapping[int, float]
    weights: float
    reducing: AllReduceTimes
    _curves: dict[tuple[int, int, int], BatchCurve] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.processing:
            raise ValueError("the time of an iteration was measured for no batch; measure at least one")
        for batch, seconds in self.processing.items():
            if batch < 1 or not (math.isfinite(seconds) and seconds > 0):
                raise ValueError(f"an iteration with {batch} samples took {seconds} s; both must be above 0")
        if not (math.isfinite(self.weights) and self.weights >= 0):
            raise ValueError(f"weights is {self.weights}; it must be 0 or more, and finite")
        object.__setattr__(self, "processing", dict(sorted(self.processing.items())))

    @property
    def fits(self) -> int:
        """b_max, the most samples that fit on one device."""
        return max(self.processing)

    @property
    def limit(self) -> int:
        """Most devices for which there are rates."""
        return self.reducing.limit

    @property
    def single(self) -> float:
        """T_j(b_max, 1), samples/s: the baseline of the scaling factor."""
        return self.fits / self.processing[self.fits]

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`; 0 where the batch does not fit. None: as many as fit. Nodes are in t_comm already."""
        chosen = self.fits * devices if batch is None else batch
        if not 1 <= devices <= self.limit:
            return 0.0
        return float(self.rates(np.array([chosen]))[0, devices - 1])

    def rates(self, batches: Counts) -> Floats:
        """T_j(b, k) for these batches and k = 1 .. `limit`; shape (batches, limit)."""
        counts, whole = np.arange(1, self.limit + 1), batches[:, np.newaxis]
        each = -(-whole // counts)
        processing = np.interp(each, list(self.processing), list(self.processing.values()))
        rates = whole / (processing + self._summing)
        return np.where((each <= self.fits) & (whole >= counts), rates, 0.0)

    @cached_property
    def _summing(self) -> Floats:
        """t_comm(p, k), k = 1 .. `limit`."""
        return self.reducing.seconds(self.weights)

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`, of a worker whose mini-batch is the largest that fits; kinds are alike."""
        return 1.0 / self.processing[self.fits]

    def best(self, least: int, most: int, limit: int) -> BatchCurve:
        """The factors on up to `limit` devices with the best batch from `least` to `most`, the smallest on ties."""
        if not 1 <= least <= most:
            raise ValueError(f"a batch of {least} to {most} samples; name 1 <= least <= most")
        key = least, most, limit
        if key not in self._curves:
            batches = np.arange(least, most + 1)
            self._curves[key] = _best(self.rates(batches)[:, :limit], batches, self.single)
        return self._curves[key]


def batches_of(job: JobState, mode: str) -> tuple[int, int] | None:
    """The least and the most samples that a step of the job may have under that mode; None: nobody knows."""
    if job.batches is None or mode == "fixed":
        return None if job.batch is None else (job.batch, job.batch)
    least, most = job.batches
    return {"max": (most, most), "min": (least, least)}.get(mode, (least, most))


def curve_of(job: JobState, mode: str, limit: int) -> BatchCurve:
    """The scaling factors of a job on up to `limit` devices; on fewer than its minimum it cannot run.

    A job without `scaling`, or without a known batch, scales as its rate curve says, whatever its batch.

    Args:
        mode: one of `MODES`.
    """
    curve = _curve(job, batches_of(job, mode), min(limit, job.limit))
    few = np.arange(1, len(curve.factors) + 1) < job.minimum_devices
    return BatchCurve(np.where(few, -np.inf, curve.factors), np.where(few, 0, curve.batches)) if few.any() else curve


def _curve(job: JobState, allowed: tuple[int, int] | None, limit: int) -> BatchCurve:
    """The same, however few devices it needs at least."""
    if job.scaling is None or allowed is None:
        rates = job.rate.rates(limit)
        return BatchCurve(rates / rates[0], np.zeros(limit, np.int64))
    if isinstance(job.scaling, Scalability):
        return job.scaling.best(*allowed, limit)
    return _asked(job.scaling, allowed, limit)


def _asked(scaling: Scaling, allowed: tuple[int, int], limit: int) -> BatchCurve:
    """The same of a scaling that tells one rate at a time; the baseline is the best rate on one device."""
    least, most = allowed
    batches = np.unique(np.linspace(least, most, min(TRIED, most - least + 1)).astype(np.int64))
    counts = range(1, limit + 1)
    rates = np.array([[scaling.rate(count, int(batch)) for count in counts] for batch in batches])
    alone = rates.max(axis=0) / np.arange(1, limit + 1)
    possible = alone[alone > 0]
    return _best(rates, batches, float(possible[0]) if len(possible) else 1.0)


def _best(rates: Floats, batches: Counts, single: float) -> BatchCurve:
    """Eq. 1 and 2 from the rates by batch and count; shape (batches, counts). Equal but for rounding is equal."""
    rate = rates.max(axis=0)
    first = (rates >= rate * (1 - _ROUNDING)).argmax(axis=0)
    factors = np.where(rate > 0, rate / single, -np.inf)
    return BatchCurve(factors, np.where(rate > 0, batches[first], 0))


K_MAX = 10
"""Devices of a job at most, as in III-C."""


class _Memo:
    """What the last plan computed: who waits, and the curve of each job with what it was computed from."""

    def __init__(self) -> None:
        self.line: WaitingLine | None = None
        self.curves: dict[str, tuple[JobState, BatchCurve]] = {}


@dataclass(frozen=True)
class Throughput(Policy):
    """The devices and batch sizes with the greatest sum of throughput scaling factors, anew at each change.

    Running jobs go on with at least their least number of devices; waiting ones join in the order of their arrival as
    long as all can have theirs (III-D). Then `best_counts` shares the devices out, each job with the batch that is best
    on its count. A batch changes only together with the devices.

    Args:
        batch: "variable" within the job's range; "fixed": the job's own, their baseline; "max" or "min": the end of
            its range, Max-BS and Min-BS.
        most: devices of a job at most, k_max.
        interval: seconds between plans; 0: at each event.
        events: with an interval, plan at once when so many events wait; 0: never.
        queue: whether jobs that cannot start wait; otherwise they are dropped.
        backfill: whether later jobs may go before one that does not fit (their Figure 4; their text ends the trial).
        priority_base: how many times as much the throughput of a job counts for each step of its priority, which then
            also orders the queue; 1: priorities are ignored.
        price: a device's cost, in units of a device's throughput: devices that bring less than they cost stay free;
            beside what `State.costs` says.
        stay: throughput that a move must bring so that a running job moves.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "throughput"
    keeps_minimum: ClassVar[bool] = True

    batch: str = "variable"
    most: int = K_MAX
    interval: float = 0.0
    events: int = 0
    queue: bool = True
    backfill: bool = False
    priority_base: float = 1.0
    price: float = 0.0
    stay: float = 0.0

    def __post_init__(self) -> None:
        if self.batch not in MODES:
            raise ValueError(f"batch is {self.batch!r}; it must be one of {', '.join(MODES)}")
        if isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1:
            raise ValueError(f"most is {self.most!r}; it must be a whole number of devices, 1 or more")
        check_flag("queue", self.queue)
        check_flag("backfill", self.backfill)
        for name, least in (("priority_base", 1.0), ("price", 0.0), ("stay", 0.0)):
            _check_number(name, getattr(self, name), least)
        Trigger(self.interval, self.events)

    @property
    def chooses_batches(self) -> bool:
        """Unless they are fixed."""
        return self.batch != "fixed"

    @property
    def trigger(self) -> Trigger:
        """At each event, or at the ends of intervals, or sooner (V-B: hybrid)."""
        return Trigger(self.interval, self.events)

    def plan(self, state: State) -> Plan:
        """Who trains on how many devices with what batch; the others wait or are dropped."""
        memo = state.memo if isinstance(state.memo, _Memo) else _Memo()
        for name in state.changed:
            if name not in state.by_name:
                memo.curves.pop(name, None)
        curves: dict[str, BatchCurve] = {}  # of those who run from now on
        pinned = self._running(state, memo, curves)
        size = state.capacity - sum(map(len, pinned.values()))
        dropped = self._join(size, state, memo, curves)
        placed = _placed(self._counts(size, state, curves), pinned, state)
        return Plan(placed, batches=_batches(placed, state, curves), dropped=dropped, memo=memo)

    def _running(self, state: State, memo: _Memo, curves: dict[str, BatchCurve]) -> dict[str, tuple[int, ...]]:
        """Enter the jobs that run; return those that go on as they are, as they hold too few for this policy."""
        pinned = {}
        for name, devices in state.running.items():
            if not state.unavailable or state.unavailable.isdisjoint(devices):
                curve = self._curve(state.by_name[name], memo)
                if curve.least is None or curve.least > len(devices):
                    pinned[name] = devices
                else:
                    curves[name] = curve
        return pinned

    def _counts(self, size: int, state: State, curves: dict[str, BatchCurve]) -> dict[str, int]:
        """The dynamic program over jobs that can all have devices at once."""
        jobs = sorted(map(state.by_name.__getitem__, curves), key=self._key)
        counts = best_counts([self._gains(job, curves[job.name], state) for job in jobs], size)
        assert counts is not None, "the queue was trimmed to what is feasible"
        alike = [(curves[job.name].key, job.priority) for job in jobs]
        return dict(zip((job.name for job in jobs), _steady(jobs, alike, counts)))

    def _key(self, job: JobState) -> tuple[bool, float, float, str]:
        """Who has trained goes first, so that nobody who was moved or hit by a failure loses its turn."""
        priority = job.priority if self.priority_base > 1 else 0.0
        return not job.attained, -priority, job.arrival, job.name

    def _curve(self, job: JobState, memo: _Memo) -> BatchCurve:
        """The factors of a job, from the memo if nothing has changed that they depend on."""
        known = memo.curves.get(job.name)
        if known is not None and known[0] is job:
            return known[1]
        curve = known[1] if known is not None and _same(known[0], job) else curve_of(job, self.batch, self.most)
        memo.curves[job.name] = job, curve
        return curve

    def _join(self, size: int, state: State, memo: _Memo, curves: dict[str, BatchCurve]) -> dict[str, str]:
        """Enter those who wait, as long as there is room for all (III-D); return who is dropped, and why."""
        room = size - sum(curve.least or 0 for curve in curves.values())
        memo.line = WaitingLine.of(replace(state, memo=memo.line), self._key)
        dropped: dict[str, str] = {}
        seen: dict[str, JobState] = {}
        for job in memo.line.take(state):
            if job.name in seen:
                continue
            seen[job.name] = job
            curve = self._curve(job, memo)
            least = curve.least
            if least is None or least > state.cluster.size:
                dropped[job.name] = _impossible(job, least, self.most, state.cluster.size)
            elif least <= room:
                room -= least
                curves[job.name] = curve
            elif least > state.capacity and self.queue:
                continue  # too few devices work: nobody waits for it
            elif not self.queue:
                dropped[job.name] = f"it needs {least} devices, and {room} are left beside those that the others need"
            elif not (self.backfill and room):
                break
        for job in seen.values():
            if job.name not in dropped:
                memo.line.back(
                    job
                )  # also who joins: its devices may not be free yet, and the driver ask before they are
        return dropped

    def _gains(self, job: JobState, curve: BatchCurve, state: State) -> Floats:
        """What a job brings to the sum, by its count."""
        gains = curve.factors
        if self.priority_base > 1:
            gains = gains * self.priority_base**job.priority
        price = self.price + state.costs.get("", 0.0)
        if price:
            gains = gains - price * np.arange(1, len(gains) + 1)
        if self.stay and 0 < job.held <= len(gains):
            gains = gains + self.stay * (np.arange(1, len(gains) + 1) == job.held)
        return gains


def _same(known: JobState, job: JobState) -> bool:
    """Whether both have the same curve."""
    same = known.rate is job.rate and known.scaling is job.scaling and known.limit == job.limit
    same = same and known.minimum_devices == job.minimum_devices
    return same and known.batches == job.batches and known.batch == job.batch


def _steady(jobs: Sequence[JobState], alike: Sequence[tuple[bytes, float]], counts: Sequence[int]) -> list[int]:
    """The counts, exchanged among jobs that gain alike so that as many as possible keep what they hold."""
    left: dict[tuple[bytes, float], Counter[int]] = {kind: Counter() for kind in set(alike)}
    for kind, count in zip(alike, counts):
        left[kind][count] += 1
    chosen = [0] * len(jobs)
    for index, (job, kind) in enumerate(zip(jobs, alike)):
        if left[kind][job.held]:
            left[kind][job.held] -= 1
            chosen[index] = job.held
    rest = {kind: sorted(there.elements()) for kind, there in left.items()}
    return [count or rest[kind].pop() for count, kind in zip(chosen, alike)]


def _placed(
    counts: Mapping[str, int], pinned: Mapping[str, tuple[int, ...]], state: State
) -> dict[str, tuple[int, ...]]:
    """Jobs whose count stays keep their devices; the others get theirs anew, the largest first, where they fit best."""
    placed = dict(pinned)
    placed |= {name: held for name, count in counts.items() if len(held := state.running.get(name, ())) == count}
    free = state.free_devices()
    for name, devices in state.running.items():
        if name not in placed:
            free.give(device for device in devices if device not in state.unavailable)
    for name in sorted((name for name in counts if name not in placed), key=lambda name: -counts[name]):
        placed[name] = free.take(counts[name]) or ()
    return placed


def _batches(placed: Allocation, state: State, curves: Mapping[str, BatchCurve]) -> dict[str, int]:
    """The batches that change, as they do for jobs that move."""
    batches: dict[str, int] = {}
    for name, devices in placed.items():
        if state.running.get(name) != devices:
            batch = int(curves[name].batches[len(devices) - 1])
            if batch and batch != state.by_name[name].batch:
                batches[name] = batch
    return batches


def _impossible(job: JobState, least: int | None, most: int, size: int) -> str:
    if least is not None:
        what = "it" if least <= job.minimum_devices else "its smallest batch"
        return f"{what} needs {least} devices; the cluster has {size}"
    if job.minimum_devices > min(most, job.limit):
        return f"it needs {job.minimum_devices} devices; it may have {min(most, job.limit)}"
    return f"none of its batches fits on {min(most, job.limit)} devices or fewer, the most that it may have"


def _check_number(name: str, value: object, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} is {value!r}; it must be a number of {least:g} or more")
