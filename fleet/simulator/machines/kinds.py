"""Devices of several kinds, where a step takes as long as the slowest (EasyScale, SC'23, 3.4, and its artifact)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fleet.scheduling.easyscale.intra_job import Capability, KindCounts, configure, evaluate
from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import DEFAULT_SAMPLES, Costs, MachineOfCosts, MeasuredMachine, arrived, unknown
from fleet.simulator.traces.table import TraceTable, advice_on, read_table
from fleet.simulator.traces.trace import TraceJob

FILE = "minibatch_seconds_by_gpu.csv"
FREE, SAME_KIND, MIXED_KINDS = "ddp_nondeterminism", "ddp_determinism", "ddp_hetero"
"""Columns: nothing pinned; the same bits on one kind of device (D1); the same bits on any (D2)."""
OTHER_NAMES = {"neumf": "ncf"}
"""What the measurements call a model, and what the workload calls it."""


@dataclass(frozen=True)
class Minibatch:
    """One line: a virtual worker's mini-batch, and its seconds by column."""

    batch: int
    seconds: Mapping[str, float]


class KindRates:
    """Seconds of a mini-batch by model and kind of device.

    One batch size was measured for each model. The time of another is taken as proportional to it.
    A step of N virtual workers on m devices of one kind takes ceil(N / m) mini-batches.

    Args:
        measured: (model, kind) -> the measured rates.
    """

    def __init__(self, measured: Mapping[tuple[str, str], Minibatch]) -> None:
        self._measured = dict(measured)

    @property
    def models(self) -> tuple[str, ...]:
        """The models, by name."""
        return tuple(dict.fromkeys(model for model, _ in self._measured))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of device, in the order of the file."""
        return tuple(dict.fromkeys(kind for _, kind in self._measured))

    def batch(self, model: str, kind: str) -> int:
        """Samples of the mini-batch that was measured.

        Raises:
            UnknownRate: the model or the kind is not known.
        """
        return self._found(model, kind).batch

    def seconds(self, model: str, batch: float, kind: str, column: str = SAME_KIND) -> float:
        """Seconds of one mini-batch of `batch` samples on one device.

        Args:
            batch: samples of one virtual worker.
            column: FREE, SAME_KIND or MIXED_KINDS.

        Raises:
            UnknownRate: the model, the kind or the column is not known.
        """
        found = self._found(model, kind)
        if column not in found.seconds:
            raise unknown("column", column, found.seconds)
        return found.seconds[column] * batch / found.batch

    def rates(self, model: str, batch: float, kind: str, workers: int, limit: int, column: str = SAME_KIND) -> Floats:
        """Steps/s of N = `workers` virtual workers of `batch` samples each on 1 .. limit devices of one kind.

        Returns:
            float64 of shape (limit,), read-only.

        Raises:
            UnknownRate: as `seconds`.
        """
        turns = -(-workers // np.arange(1, limit + 1))
        rates = np.asarray(1.0 / (turns * self.seconds(model, batch, kind, column)), dtype=np.float64)
        rates.flags.writeable = False
        return rates

    def _found(self, model: str, kind: str) -> Minibatch:
        if model not in self.models:
            raise unknown("model", model, self.models)
        if (model, kind) not in self._measured:
            raise unknown(f"kind of device for {model}", kind, self.kinds)
        return self._measured[model, kind]

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`, on the kind of device that the job prefers; on the first of the file if it prefers none."""
        workers = job.workers or job.devices
        if job.batch_size is None:
            raise unknown("batch size", "", ())
        return self.rates(job.model, job.batch_size / workers, job.kind or self.kinds[0], workers, limit)

    def machine(self, cluster: Cluster, costs: Costs, guaranteed: int | None = None) -> MeasuredMachine | KindMachine:
        """As `Rates.machine`."""
        if not cluster.kinds:
            return MeasuredMachine(cluster, self, costs, guaranteed)
        check_kinds(cluster, self.kinds)
        return KindMachine(cluster, self, costs, guaranteed=guaranteed)


def check_kinds(cluster: Cluster, kinds: Sequence[str]) -> None:
    """Check that there are rates of each kind of device of a cluster.

    Raises:
        ValueError: of one there are none.
    """
    for kind in cluster.counts():
        if kind not in kinds and (kind or len(kinds) > 1):
            raise ValueError(f"cluster: there are no rates of devices of kind {kind!r}; {advice_on(kind, kinds)}")


def read_kind_rates(path: str | Path) -> KindRates:
    """Read the columns model, bs, gpu, and seconds by FREE, SAME_KIND, MIXED_KINDS; names are taken in small letters.

    Raises:
        TraceError: with everything that is wrong.
    """
    path = Path(path)
    table = read_table(path / FILE if path.is_dir() else path)
    table.require(("model", "bs", "gpu", FREE, SAME_KIND, MIXED_KINDS), "mini-batch seconds")
    batch = table.numbers("bs", least=1, whole=True)
    columns = [name for name in table.columns if name not in ("model", "bs", "gpu")]
    seconds = {name: table.numbers(name, least=0, above=True) for name in columns}
    models = [OTHER_NAMES.get(name.lower(), name.lower()) for name in table.texts("model")]
    kinds = [kind.lower() for kind in table.texts("gpu")]
    _check_once(table, models, kinds)
    table.finish()
    return KindRates(
        {
            key: Minibatch(int(batch[row]), {name: float(values[row]) for name, values in seconds.items()})
            for row, key in enumerate(zip(models, kinds))
        }
    )


def _check_once(table: TraceTable, models: list[str], kinds: list[str]) -> None:
    first: dict[tuple[str, str], int] = {}
    for row, key in enumerate(zip(models, kinds)):
        if first.setdefault(key, row) != row:
            rule = f"line {table.lines[first[key]]} has this model and kind of device already"
            table.blame(row, "model", rule, "leave one of them out")


@dataclass(frozen=True)
class KindScaling:
    """How fast a job's virtual workers are on each kind of device; a `Scaling`.

    Attributes:
        seconds: kind -> of one mini-batch.
        workers: N, virtual workers.
        samples: samples of one mini-batch.
        home: the kind for which `rate` speaks.
        curves: kind -> samples/s by devices of it.
    """

    seconds: Mapping[str, float]
    workers: int
    samples: float
    home: str
    curves: Mapping[str, RateCurve] = field(default_factory=dict)

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`: N mini-batches in ceil(N / m) turns, on any nodes, of the job's own batch size."""
        turns = -(-self.workers // min(devices, self.workers))
        return self.workers * self.samples / (turns * self.seconds[self.home])

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`."""
        return 1.0 / self.seconds[kind]

    def curve_on(self, kind: str) -> RateCurve:
        """As `KnowsKinds.curve_on`."""
        return self.curves[kind]


class _Speeds(NamedTuple):
    """What the kinds can do for a job, and what policies are told of it."""

    true: tuple[Capability, ...]
    told: tuple[Capability, ...]


def _pace(speeds: _Speeds, nums: KindCounts, workers: int) -> float:
    """Samples/s: each device has as many workers as it should by the told rates, and takes its true time for them."""
    planned = configure(nums, speeds.told, workers)
    assert planned is not None, "a job that is given devices has some"
    found = evaluate(nums, planned.executors, planned.threads, speeds.true, workers)
    assert found is not None, "the same split has the same room"
    return found.perf


@dataclass(frozen=True)
class RateReading:
    """How measured seconds of a mini-batch are read.

    Attributes:
        column: the column of the rates, for all jobs; None: D2 for jobs on several kinds, D1 for others.
        batch_share: part of a mini-batch's time that is proportional to its samples; the rest is as measured.
    """

    column: str | None = None
    batch_share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.batch_share <= 1:
            raise ValueError(f"batch_share is {self.batch_share}; it must be 0 to 1")


@dataclass(frozen=True)
class Crowding:
    """Several executors of a job on one device.

    Attributes:
        most: kind -> executors of a job that its devices hold at most; elsewhere 1.
        interference: the part of its speed that an executor keeps beside others on its device.
    """

    most: Mapping[str, int] = field(default_factory=dict)
    interference: float = 1.0


class KindMachine(MachineOfCosts):
    """N virtual workers on devices of one or several kinds, spread as well as it goes.

    A job that may use several kinds at once trains with kernels that give the same bits on all of them (D2), wherever
    it is: its bits must not depend on that. A job that stays on one kind needs no more than D1.

    Args:
        cluster: nodes, devices and their kinds.
        rates: seconds of a mini-batch.
        costs: costs of moves.
        reading: how the rates are read.
        crowding: how many executors a device holds.
        told: the rates that policies see instead of `rates`, where these shall be wrong.
        guaranteed: priority from which a job is a guaranteed one; None: none is.

    Raises:
        ValueError: a cluster without kinds.
    """

    def __init__(
        self,
        cluster: Cluster,
        rates: KindRates,
        costs: Costs | None = None,
        reading: RateReading = RateReading(),
        crowding: Crowding = Crowding(),
        told: KindRates | None = None,
        guaranteed: int | None = None,
    ) -> None:
        if not cluster.kinds:
            raise ValueError("the cluster's devices have no kinds; name one for each node, such as v100")
        super().__init__(cluster, costs)
        self._rates, self._told = rates, told or rates
        self._reading, self._crowding = reading, crowding
        self._guaranteed = guaranteed
        self._kinds = list(cluster.counts())
        self._scalings: dict[tuple[object, ...], tuple[KindScaling, RateCurve]] = {}
        self._speeds: dict[str, _Speeds] = {}  # of jobs with a model
        self._paces: dict[tuple[object, ...], float] = {}

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`. A job without a model serves for its duration, at one sample a device and second.

        Raises:
            ValueError: the trace does not say how long the job is.
            UnknownRate: its model was not measured on some kind of the cluster.
        """
        return self._training(job) if job.model else self._serving(job)

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`: N mini-batches over the time of the slowest device, spread by what policies are told."""
        speeds = self._speeds.get(job.name)
        if speeds is None:
            return job.rate(len(devices))
        kinds = [self._cluster.kind_of(device) for device in devices]
        nums = tuple(kinds.count(kind) for kind in self._kinds)
        workers = job.rate.workers or job.limit
        key = (speeds, workers, nums)
        if key not in self._paces:
            self._paces[key] = _pace(speeds, nums, workers)
        return self._paces[key]

    def seconds(self, job: TraceJob, kind: str) -> float:
        """Seconds of one mini-batch of the job on one device of that kind."""
        return self._seconds(self._rates, job, kind)

    def _serving(self, job: TraceJob) -> JobState:
        if job.duration is None:
            raise ValueError(
                f"job {job.name}: the trace says neither its model nor its duration, so its length is not known"
            )
        curve = RateCurve({1: DEFAULT_SAMPLES, job.devices: DEFAULT_SAMPLES * job.devices}, 1, job.devices)
        return self._state(job, curve, job.devices, DEFAULT_SAMPLES * job.devices * job.duration)

    def _training(self, job: TraceJob) -> JobState:
        if job.samples is None or job.batch_size is None:
            raise ValueError(
                f"job {job.name}: the trace does not say its samples and batch size, so its length is not known"
            )
        scaling, curve = self._scaling(job)
        samples = job.batch_size / scaling.workers
        true, told = (
            tuple(
                Capability(
                    samples / self._seconds(rates, job, kind),
                    self._crowding.most.get(kind, 1),
                    self._crowding.interference,
                )
                for kind in self._kinds
            )
            for rates in (self._rates, self._told)
        )
        self._speeds[job.name] = _Speeds(true, told)
        return self._state(job, curve, scaling.workers, job.samples, scaling)

    def _state(
        self, job: TraceJob, curve: RateCurve, limit: int, samples: float, scaling: KindScaling | None = None
    ) -> JobState:
        most = min(limit, self._cluster.size)
        return arrived(job, curve, most, samples, self._costs, self._guaranteed, scaling=scaling)

    def _scaling(self, job: TraceJob) -> tuple[KindScaling, RateCurve]:
        """A job's speeds and rate curve, computed once for jobs that are alike."""
        workers = job.workers or job.devices
        key = (job.model, job.batch_size, workers, job.kind, job.mixed)
        if key not in self._scalings:
            seconds = {kind: self._seconds(self._told, job, kind) for kind in self._kinds}
            home = job.kind if job.kind in seconds else min(seconds, key=lambda kind: seconds[kind])
            samples = (job.batch_size or 1) / workers
            curves = {kind: self._curve(seconds[kind], workers, samples) for kind in self._kinds}
            self._scalings[key] = KindScaling(seconds, workers, samples, home, curves), curves[home]
        return self._scalings[key]

    def _curve(self, seconds: float, workers: int, samples: float) -> RateCurve:
        """Samples/s on devices of one kind, with mini-batches of so many seconds."""
        counts = sorted({-(-workers // turns) for turns in range(1, workers + 1)})
        rates = {count: workers * samples / (-(-workers // count) * seconds) for count in counts}
        return RateCurve(rates, max(self._cluster.devices_per_node), workers=workers)

    def _seconds(self, rates: KindRates, job: TraceJob, kind: str) -> float:
        if job.batch_size is None:
            raise unknown("batch size", "", ())
        column = self._reading.column or (MIXED_KINDS if job.mixed else SAME_KIND)
        samples = job.batch_size / (job.workers or job.devices)
        proportional = rates.seconds(job.model, samples, kind, column)
        measured = rates.batch(job.model, kind)
        fixed = rates.seconds(job.model, measured, kind, column)
        share = self._reading.batch_share
        return share * proportional + (1 - share) * fixed
