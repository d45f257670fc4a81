"""What a journal says, as frozen records: one class for each kind of fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.run_directory.energy_totals import EnergyTotals
from fleet.run_directory.metric_order import Comparing
from fleet.run_directory.sample_counts import SampleCounts


@dataclass(frozen=True)
class RecordedRank:
    """One MPI rank and what it does."""

    rank: int
    node: int
    host: str
    role: str
    device: int | None = None
    device_name: str | None = None
    kind: str | None = None
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class SessionCluster:
    """The machine of one session; members: of its devices that may be on one accelerator."""

    ranks: tuple[RecordedRank, ...]
    devices_per_node: tuple[int, ...]
    members: int = 1

    @property
    def size(self) -> int:
        """Number of devices M."""
        return sum(self.devices_per_node)

    @property
    def node_starts(self) -> tuple[int, ...]:
        """First device of each node."""
        return tuple(sum(self.devices_per_node[:node]) for node in range(len(self.devices_per_node)))


@dataclass(frozen=True)
class RecordedSession:
    """One start, from second `start` to second `end` of the run; `prices`: kind of device -> its price over time."""

    index: int
    start: float
    end: float
    fleet: str = ""
    host: str = ""
    spec_hash: str = ""
    name: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    policy: str = ""
    policy_parameters: Mapping[str, Any] = field(default_factory=dict)
    time_scale: float | None = None
    reduce: str = ""
    cluster: SessionCluster | None = None
    status: str | None = None
    overheads: Mapping[str, float] | None = None
    prices: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedJob:
    """One network as the spec asked for it."""

    name: str
    model: str = ""
    parameters: int | None = None
    parameter_bytes: int | None = None
    virtual_workers: int | None = None
    batch_size: int | None = None
    seed: int | None = None
    data: str = ""
    samples: int | None = None
    max_epochs: int | None = None


@dataclass(frozen=True)
class RecordedRound:
    """One flotilla: its allocation, and when it began and ended (seconds of the run).

    `bound` and `expected` are the policy's, if it computed them: no schedule ends all jobs before the first, and the
    policy expected to end them at the second. `working` of the preprocessors made samples, for a `demand` of so many
    samples per second; None where it was not chosen.
    """

    session: int
    number: int
    start: float
    end: float
    allocation: Mapping[str, tuple[int, ...]]
    paces: Mapping[str, float]
    planning_seconds: float
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
class Waited:
    """Seconds that one device waited in one epoch: for samples (or the pace), and for the peers of its group."""

    data: float = 0.0
    peers: float = 0.0


@dataclass(frozen=True)
class Epoch:
    """One finished epoch of a job; `rate` in samples per second."""

    job: str
    epoch: int
    step: int
    time: float
    seconds: float
    rate: float | None
    devices: tuple[int, ...]
    round: int
    session: int
    metrics: Mapping[str, float]
    learning_rate: float | None
    waited: Mapping[int, Waited]
    computed: Mapping[int, float]


@dataclass(frozen=True)
class CheckpointFile:
    """One checkpoint that was written."""

    job: str
    epoch: int
    step: int
    time: float
    path: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class FittedRates:
    """A rate curve: measured r(m) by m, and fitted[m - 1] = r(m), in samples per second."""

    job: str
    source: str
    measured: Mapping[int, float]
    fitted: tuple[float, ...]


@dataclass(frozen=True)
class RecordedMeasurement:
    """One measurement, of the profiler or of first steps in training; it ended at `time` and took `seconds`."""

    job: str
    devices: tuple[int, ...]
    count: int
    rate: float
    seconds: float
    time: float


@dataclass(frozen=True)
class Preprocessing:
    """Throughput (samples/s) by number of preprocessors, what the jobs demand, and how many that takes."""

    counts: Mapping[int, float]
    demand: float | None
    chosen: int | None


@dataclass(frozen=True)
class RecordedOutcome:
    """Where a job stands: running, stopped (goes on later, or its search stopped it), paused, done or failed."""

    job: str
    status: str
    time: float
    why: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: str = ""


@dataclass(frozen=True)
class RecordedFailure:
    """One failure of a job: its error in a line, and the traceback."""

    job: str
    time: float
    epoch: int | None
    error: str
    traceback: str


@dataclass(frozen=True)
class Warned:
    """One warning, of one job or of the run."""

    text: str
    job: str | None
    time: float


@dataclass(frozen=True)
class RecordedSkip:
    """One sample that could not be made, and the one that was taken in its place; `kind` is train or held_out."""

    data: str
    kind: str
    sample: int
    substitute: int
    epoch: int
    reason: str
    time: float


@dataclass(frozen=True)
class RunHistory:
    """All that a journal says of a run.

    `epochs` holds the valid epoch of each (job, epoch); `superseded` those which a later session trained again;
    `measurements` those of the profiler, `timings` those of first steps in training; `samples` are counted over all
    sessions that ended in good order; `energy` is empty where nothing told it; `ensemble` has the figures of all
    networks together, if the last session told any; `comparing` says by what networks are compared.
    """

    sessions: tuple[RecordedSession, ...] = ()
    jobs: Mapping[str, RecordedJob] = field(default_factory=dict)
    rounds: tuple[RecordedRound, ...] = ()
    spans: tuple[DeviceSpan, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    superseded: tuple[Epoch, ...] = ()
    checkpoints: tuple[CheckpointFile, ...] = ()
    rates: tuple[FittedRates, ...] = ()
    measurements: tuple[RecordedMeasurement, ...] = ()
    timings: tuple[RecordedMeasurement, ...] = ()
    preprocessing: Preprocessing | None = None
    outcomes: Mapping[str, RecordedOutcome] = field(default_factory=dict)
    failures: tuple[RecordedFailure, ...] = ()
    warnings: tuple[Warned, ...] = ()
    skipped: tuple[RecordedSkip, ...] = ()
    samples: SampleCounts = SampleCounts()
    energy: EnergyTotals = EnergyTotals()
    ensemble: Mapping[str, float] = field(default_factory=dict)
    comparing: Comparing = field(default_factory=Comparing)

    @property
    def wall(self) -> float:
        """Seconds of all sessions together."""
        return self.sessions[-1].end if self.sessions else 0.0

    @property
    def status(self) -> str:
        """done, failed or stopped as the last session said at its end; unfinished if it said nothing."""
        return (self.sessions[-1].status if self.sessions else None) or "unfinished"

    @property
    def cluster(self) -> SessionCluster | None:
        """The latest machine that is known."""
        return next((s.cluster for s in reversed(self.sessions) if s.cluster is not None), None)

    @property
    def devices(self) -> tuple[int, ...]:
        """Every device that any session had."""
        sizes = [session.cluster.size for session in self.sessions if session.cluster is not None]
        return tuple(sorted({*range(max(sizes, default=0)), *(span.device for span in self.spans)}))

    def epochs_of(self, job: str) -> tuple[Epoch, ...]:
        """The valid epochs of `job`, in order."""
        return tuple(sorted((epoch for epoch in self.epochs if epoch.job == job), key=lambda epoch: epoch.epoch))
