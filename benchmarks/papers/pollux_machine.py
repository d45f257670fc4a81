"""The machine of Pollux: goodput by placement, batch and epoch (Qiao et al., OSDI'21, 5.3; petuum/adaptdl)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.papers.pollux import Tuned
from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs, MachineOfCosts, UnknownRate, arrived, unknown
from fleet.simulator.traces.table import TraceError, TraceProblem, TraceTable, read_table
from fleet.simulator.traces.trace import TraceJob

PLACEMENTS, SCALABILITY, VALIDATION = "placements.csv", "scalability.csv", "validation-*.csv"
PER_NODE = 4
"""Devices of a node of the authors' cluster."""
MAX_LOCAL = {"yolov3": 8}
"""Largest local batch sizes where the authors' simulator takes less than was measured."""
MANY_NODES = 16
"""Beyond these nodes a step takes as long as on so many."""


class StepTime(NamedTuple):
    """Seconds of one step, and of the part of it in which gradients are exchanged."""

    seconds: float
    sync: float


class GradientNoise(NamedTuple):
    """Squared length of the mean gradient, and variance of a gradient, during one epoch."""

    sqr: float
    var: float


class StepTimes(NamedTuple):
    """Measured steps by local batch size, ascending; each of shape (sizes,)."""

    local: Floats
    seconds: Floats
    sync: Floats

    def at(self, local: float) -> StepTime:
        """Between two sizes the straight line; beyond the last, computing takes as much longer as there are samples."""
        sync = float(np.interp(local, self.local, self.sync))
        seconds = float(np.interp(local, self.local, self.seconds))
        more = max(1.0, local / float(self.local[-1]))
        return StepTime(sync + (seconds - sync) * more, sync)


@dataclass(frozen=True)
class Epochs:
    """Measurements epoch by epoch at one batch size; each of shape (epochs,).

    Attributes:
        progress: steps of the smallest batch size that would have got as far.
        iteration: steps so far.
        metric: on held-out data.
        grad_sqr, grad_var: as `GradientNoise`.
    """

    progress: Floats
    iteration: Floats
    metric: Floats
    grad_sqr: Floats
    grad_var: Floats


class Application:
    """One network of Pollux' workloads.

    Args:
        placements: devices on each node, in the smallest rotation -> steps.
        scalability: (nodes, devices) -> steps, for larger clusters.
        validation: global batch size -> what each epoch brought.
        max_local: largest batch of one device; None: the largest that was measured.
    """

    def __init__(
        self,
        placements: Mapping[tuple[int, ...], StepTimes],
        scalability: Mapping[tuple[int, int], StepTimes],
        validation: Mapping[int, Epochs],
        max_local: int | None = None,
    ) -> None:
        self._placements = dict(placements)
        self._spread = _by_spread(placements, scalability)
        self.validation = dict(sorted(validation.items()))
        self.max_local = max_local or int(max(times.local[-1] for times in placements.values()))
        self.min_local = int(min(times.local[0] for times in placements.values()))
        self.epochs = min(len(epochs.progress) for epochs in validation.values())

    @property
    def initial_batch(self) -> int:
        """The smallest global batch size, whose steps `progress` counts."""
        return min(self.validation)

    def step(self, placement: Sequence[int], local: float) -> StepTime:
        """One step on so many devices of each node, with `local` samples on each device.

        A placement that was not measured lies on straight lines between those that were: first in devices for each
        node, then in nodes.
        """
        held = tuple(count for count in placement if count)
        if not held:
            raise ValueError(f"placement {tuple(placement)} holds no device; a step runs on one or more")
        known = self._placements.get(min(held[i:] + held[:i] for i in range(len(held))))
        return known.at(local) if known is not None else self._between(len(held), sum(held), local)

    def iteration(self, placement: Sequence[int], batch: int) -> float:
        """Seconds of one step of `batch` samples, those that do not fit at once accumulated over several passes.

        Of a pass before the last nothing is exchanged, so it takes seconds - sync.
        """
        local = math.ceil(batch / sum(placement) - 1e-8)
        passes = math.ceil(local / self.max_local - 1e-8)
        step = self.step(placement, math.ceil(local / passes - 1e-8))
        return step.seconds + (passes - 1) * (step.seconds - step.sync)

    def work(self, batch: int) -> float:
        """Steps at a global batch size until the last epoch ends, where the artifact's jobs are done.

        Raises:
            UnknownRate: the size lies outside those that were measured.
        """
        return self._at(batch, "iteration", self.epochs - 1)

    def progress(self, epoch: int) -> float:
        """`Epochs.progress` after so many epochs, the least over all batch sizes."""
        if epoch == 0:
            return 0.0
        return float(min(epochs.progress[epoch - 1] for epochs in self.validation.values()))

    def noise(self, batch: int, epoch: int) -> GradientNoise:
        """Gradient noise at a global batch size during one epoch, from 0; between two sizes the straight line.

        Raises:
            UnknownRate: the size lies outside those that were measured.
        """
        return GradientNoise(self._at(batch, "grad_sqr", epoch), self._at(batch, "grad_var", epoch))

    def _at(self, batch: int, what: str, epoch: int) -> float:
        sizes = list(self.validation)
        if not sizes[0] <= batch <= sizes[-1]:
            raise unknown("batch size", batch, sizes)
        values = [getattr(epochs, what)[epoch] for epochs in self.validation.values()]
        return float(np.interp(batch, sizes, values))

    def _between(self, nodes: int, devices: int, local: float) -> StepTime:
        share = devices / nodes
        nodes = min(nodes, MANY_NODES)
        measured = sorted(self._spread)
        above = next((count for count in measured if count >= nodes), measured[-1])
        below = max((count for count in measured if count <= nodes), default=above)
        low, high = self._on_nodes(below, share, local), self._on_nodes(above, share, local)
        weight = 0.0 if above == below else (nodes - below) / (above - below)
        return StepTime(*(a + weight * (b - a) for a, b in zip(low, high)))

    def _on_nodes(self, nodes: int, share: float, local: float) -> StepTime:
        """On a measured count of nodes, with `share` devices of each."""
        found = self._spread[nodes]
        counts = list(found)
        steps = [found[count].at(local) for count in counts]
        return StepTime(*(float(np.interp(share * nodes, counts, column)) for column in zip(*steps)))


class PolluxRates:
    """Rates of Pollux' applications on nodes of `per_node` devices, filled one after another.

    Args:
        applications: by name.
    """

    def __init__(self, applications: Mapping[str, Application], per_node: int = PER_NODE) -> None:
        self._applications = dict(applications)
        self._per_node = per_node
        self._rates = lru_cache(maxsize=None)(self._computed)

    @property
    def models(self) -> tuple[str, ...]:
        """The applications, by name."""
        return tuple(self._applications)

    def application(self, model: str) -> Application:
        """All that was measured of one.

        Raises:
            UnknownRate: there is no such application.
        """
        if model not in self._applications:
            raise unknown("model", model, self._applications)
        return self._applications[model]

    def rates(self, model: str, batch: int, limit: int) -> Floats:
        """Steps/s of a global batch on 1 .. limit devices; float64 of shape (limit,), read-only.

        Raises:
            UnknownRate: there is no such application, or no such batch size of it was measured.
        """
        return self._rates(model, batch, limit)

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`."""
        if job.batch_size is None:
            raise UnknownRate(f"job {job.name} has no batch size; name one")
        return self.rates(job.model, job.batch_size, limit)

    def work(self, job: TraceJob) -> float:
        """Steps that a job of a Pollux workload takes at its batch size: the trace itself does not tell.

        Raises:
            UnknownRate: as `rates`.
        """
        if job.batch_size is None:
            raise UnknownRate(f"job {job.name} has no batch size; name one")
        return self.application(job.model).work(job.batch_size)

    def _computed(self, model: str, batch: int, limit: int) -> Floats:
        application = self.application(model)
        application.work(batch)  # tells of a batch size that was not measured
        seconds = [application.iteration(self._packed(count), batch) for count in range(1, limit + 1)]
        rates: Floats = 1.0 / np.array(seconds)
        rates.flags.writeable = False
        return rates

    def _packed(self, count: int) -> tuple[int, ...]:
        full, rest = divmod(count, self._per_node)
        return (self._per_node,) * full + ((rest,) if rest else ())

    def machine(self, cluster: Cluster, costs: Costs, guaranteed: int | None = None) -> PolluxMachine:
        """As `Rates.machine`."""
        if guaranteed is not None:
            raise ValueError("jobs with rates of Pollux serve nobody; leave --guaranteed out")
        return PolluxMachine(cluster, self, costs)


def read_pollux_rates(folder: str | Path, per_node: int = PER_NODE) -> PolluxRates:
    """Read a folder with one folder for each application: PLACEMENTS, SCALABILITY and the files VALIDATION.

    Raises:
        TraceError: with everything that is wrong in all of the files.
    """
    folder = Path(folder)
    applications: dict[str, Application] = {}
    problems: list[TraceProblem] = []
    for place in sorted(folder.glob(f"*/{PLACEMENTS}")):
        try:
            applications[place.parent.name] = _read_application(place.parent)
        except TraceError as error:
            problems += error.problems
    if problems:
        raise TraceError(problems)
    if not applications:
        rule = f"no folder in it holds a {PLACEMENTS}"
        raise TraceError.of(folder, rule, "name the folder above those of the applications")
    return PolluxRates(applications, per_node)


def _read_application(folder: Path) -> Application:
    placements = read_steps(folder / PLACEMENTS, ("placement",))
    scalability = read_steps(folder / SCALABILITY, ("num_nodes", "num_replicas"))
    files = sorted(folder.glob(VALIDATION))
    if not files:
        rule = f"there is no {VALIDATION} in it: progress and gradient noise by batch size"
        raise TraceError.of(folder, rule, "add one for each batch size")
    validation = {batch_in_name(file): read_epochs(file) for file in files}
    by_place = {tuple(map(int, str(place))): times for (place,), times in placements.items()}
    by_spread: dict[tuple[int, int], StepTimes] = {(key[0], key[1]): times for key, times in scalability.items()}
    return Application(by_place, by_spread, validation, MAX_LOCAL.get(folder.name))


def read_steps(file: Path, keys: Sequence[str]) -> dict[tuple[int, ...], StepTimes]:
    table = read_table(file)
    table.require((*keys, "local_bsz", "step_time", "sync_time"), "Pollux' step times")
    key_columns = [table.numbers(key, least=1, whole=True) for key in keys]
    local = table.numbers("local_bsz", least=1)
    seconds = table.numbers("step_time", least=0, above=True)
    sync = table.numbers("sync_time", least=0)
    table.check(~(sync > seconds), "sync_time", "it is longer than the whole step", "correct one of the two")
    table.finish()
    rows: dict[tuple[int, ...], dict[float, StepTime]] = {}
    for row, key in enumerate(zip(*(column.astype(int).tolist() for column in key_columns))):
        rows.setdefault(key, {})[float(local[row])] = StepTime(float(seconds[row]), float(sync[row]))
    return {key: _step_times(steps) for key, steps in rows.items()}


def _step_times(steps: Mapping[float, StepTime]) -> StepTimes:
    local = sorted(steps)
    return StepTimes(
        np.array(local),
        np.array([steps[size].seconds for size in local]),
        np.array([steps[size].sync for size in local]),
    )


def read_epochs(file: Path) -> Epochs:
    table: TraceTable = read_table(file)
    names = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
    table.require(names, "Pollux' validation")
    columns: dict[str, Any] = {name: table.numbers(name, least=-math.inf if name == "metric" else 0) for name in names}
    table.finish()
    return Epochs(**columns)


def batch_in_name(file: Path) -> int:
    text = file.stem.removeprefix("validation-")
    if not text.isdecimal() or int(text) < 1:
        rule = f"{text!r} is no batch size"
        raise TraceError.of(file, rule, "name the file validation-BATCHSIZE.csv")
    return int(text)


def _by_spread(
    placements: Mapping[tuple[int, ...], StepTimes], scalability: Mapping[tuple[int, int], StepTimes]
) -> dict[int, dict[int, StepTimes]]:
    """Nodes -> devices -> steps, ascending; the mean over the placements of as many devices on as many nodes."""
    groups: dict[tuple[int, int], list[StepTimes]] = {}
    for placement, times in placements.items():
        groups.setdefault((len(placement), sum(placement)), []).append(times)
    means = {key: _mean(group) for key, group in groups.items()} | dict(scalability)
    spread: dict[int, dict[int, StepTimes]] = {}
    for nodes, devices in sorted(means):
        spread.setdefault(nodes, {})[devices] = means[nodes, devices]
    return spread


def _mean(group: Sequence[StepTimes]) -> StepTimes:
    """Mean over the local batch sizes that any of them has."""
    if len(group) == 1:
        return group[0]
    steps: dict[float, list[StepTime]] = {}
    for times in group:
        for local, seconds, sync in zip(*times):
            steps.setdefault(float(local), []).append(StepTime(float(seconds), float(sync)))
    return _step_times({local: StepTime(*(float(np.mean(c)) for c in zip(*found))) for local, found in steps.items()})


MOST_DEVICES = 64
"""The authors' measurements end there."""
CANDIDATES = 50
"""Batch sizes that a job looks at, in a geometric series."""
RIGID = ("ncf",)
"""Applications whose batch size the authors' simulator leaves as it is."""
_ROUNDING = 1e-6  # of an epoch


class Agent:
    """What an application's jobs know of themselves (PolluxAgent, 4.1), tabulated as it is asked for.

    Args:
        application: its measurements.
        rigid: its batch size, if that must not change.
    """

    def __init__(self, application: Application, rigid: int | None) -> None:
        self.application, self.rigid = application, rigid
        self.ends: Floats = np.array([application.progress(epoch + 1) for epoch in range(application.epochs)])
        self._sizes = np.array(list(application.validation), dtype=np.float64)
        self._tables = [self._noise(epoch) for epoch in range(application.epochs)]
        self.iteration = cache(application.iteration)
        self.tuned = cache(self._tuned)
        self._grid = cache(self._seconds)

    @property
    def largest(self) -> int:
        """The largest batch size."""
        return int(self._sizes[-1])

    def gain(self, batch: Floats | float, epoch: int) -> Floats:
        """How far one step brings a job, in steps of the smallest batch size: r of AdaScale (Eq. 5).

        With the scale s = M / M_0, gradient variance v and squared length g:  (v + g) / (v / s + g).
        """
        variance, square = (np.interp(batch, self._sizes, table) for table in self._tables[epoch])
        scale = np.asarray(batch) / self.application.initial_batch
        gain: Floats = (variance + square) / (variance / scale + square)
        return gain

    def goodput(self, placement: tuple[int, ...], batch: int, epoch: int) -> float:
        """Samples/s of the smallest batch size that bring it as far."""
        return self.application.initial_batch * float(self.gain(batch, epoch)) / self.iteration(placement, batch)

    def _noise(self, epoch: int) -> tuple[Floats, Floats]:
        noise = [self.application.noise(batch, epoch) for batch in self.application.validation]
        return np.array([each.var for each in noise]), np.array([each.sqr for each in noise])

    def _seconds(self, placement: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Batch sizes on a placement, and the seconds of a step of each."""
        devices = sum(placement)
        least = max(self.application.initial_batch, self.application.min_local * devices)
        if self.rigid is not None or least >= self.largest:
            batches = np.array([self.rigid or self.largest], dtype=np.float64)
        else:
            batches = np.unique(np.floor(np.geomspace(least, self.largest, CANDIDATES) + _ROUNDING))
        return batches, np.array([self.iteration(placement, int(batch)) for batch in batches])

    def _tuned(self, placement: tuple[int, ...], epoch: int) -> Tuned:
        batches, seconds = self._grid(placement)
        goodput = self.application.initial_batch * self.gain(batches, epoch) / seconds
        best = int(np.argmax(goodput))
        return Tuned(float(goodput[best]), int(batches[best]))


@dataclass(frozen=True)
class PolluxScaling:
    """A job's goodput in the epoch in which it is: a `benchmarks.papers.pollux.GoodputModel`.

    Args:
        agent: the agent of its application.
        epoch: from 0.
        batch: its own batch size.
        tried: the most devices that it has had so far.
    """

    agent: Agent
    epoch: int
    batch: int
    tried: int = 0

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `GoodputModel.rate`."""
        return self.agent.goodput(_spread(devices, nodes), batch or self.batch, self.epoch)

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`; devices are all alike here."""
        return self.agent.goodput((1,), self.batch, self.epoch) / self.batch

    def tuned(self, devices: int, nodes: int) -> Tuned:
        """As `GoodputModel.tuned`."""
        return self.agent.tuned(_spread(devices, nodes), self.epoch)


class PolluxMachine(MachineOfCosts):
    """Jobs that get on as Pollux' measurements say; a `StagedMachine`, whose stages are epochs.

    A job's samples are counted at its application's smallest batch size, so that its pace is its goodput. It is done
    when its last epoch is; where the trace says how many steps it has, it has that share of the epochs.

    Args:
        cluster: nodes and devices.
        rates: the measured rates.
        costs: costs of moves.
    """

    def __init__(self, cluster: Cluster, rates: PolluxRates, costs: Costs | None = None) -> None:
        super().__init__(cluster, costs)
        self._rates = rates
        self._agents: dict[tuple[str, int | None], Agent] = {}
        self._totals: dict[str, float] = {}
        self._curve = cache(self._computed_curve)

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        if job.batch_size is None:
            raise unknown("batch size", "", self._rates.application(job.model).validation)
        agent, batch = self._agent(job.model, job.batch_size), job.batch_size
        share = 1.0 if job.work is None else job.work / agent.application.work(batch)
        total = share * float(agent.ends[-1]) * agent.application.initial_batch
        self._totals[job.name] = total
        limit = min(self._cluster.size, MOST_DEVICES, max(1, agent.largest // agent.application.min_local))
        return arrived(
            job,
            self._curve(agent, batch, 0, limit),
            limit,
            total,
            self._costs,
            gang=min(job.devices, limit),
            batches=None if agent.rigid else (agent.application.initial_batch, agent.largest),
            scaling=PolluxScaling(agent, 0, batch),
        )

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`: the goodput of its batch size where it is, in the epoch in which it is."""
        scaling = _scaling(job)
        return scaling.agent.goodput(self._placement(devices), job.batch or scaling.batch, scaling.epoch)

    def lasts(self, job: JobState) -> float:
        """As `StagedMachine.lasts`: the samples that are left of its epoch."""
        scaling = _scaling(job)
        if scaling.epoch + 1 >= len(scaling.agent.ends):
            return math.inf
        first = scaling.agent.application.initial_batch
        return float(scaling.agent.ends[scaling.epoch]) * first - self._totals[job.name] + job.remaining

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """As `StagedMachine.begun`: it has now tried so many devices."""
        scaling = _scaling(job)
        tried = PolluxScaling(scaling.agent, scaling.epoch, scaling.batch, max(scaling.tried, len(devices)))
        return job.changed(scaling=tried)

    def advanced(self, job: JobState) -> JobState:
        """As `StagedMachine.advanced`: its next epoch begins."""
        before = _scaling(job)
        agent, epoch = before.agent, before.epoch + 1
        return job.changed(
            epochs=epoch,
            scaling=PolluxScaling(agent, epoch, before.batch, before.tried),
            rate=self._curve(agent, before.batch, epoch, job.limit),
        )

    def _agent(self, model: str, batch: int) -> Agent:
        key = model, batch if model in RIGID else None
        if key not in self._agents:
            self._agents[key] = Agent(self._rates.application(model), key[1])
        return self._agents[key]

    def _computed_curve(self, agent: Agent, batch: int, epoch: int, limit: int) -> RateCurve:
        """On devices that fill nodes one after another, at a batch size that stays as it is."""
        each = max(self._cluster.devices_per_node)
        counts = range(1, limit + 1)
        measured = {count: agent.goodput(_spread(count, -(-count // each)), batch, epoch) for count in counts}
        return RateCurve(measured, each, limit=limit)

    def _placement(self, devices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(Counter(self._cluster.node_of(device) for device in devices).values())


def _scaling(job: JobState) -> PolluxScaling:
    if not isinstance(job.scaling, PolluxScaling):
        raise ValueError(f"job {job.name} did not arrive on this machine: its goodput is not known")
    return job.scaling


@cache
def _spread(devices: int, nodes: int) -> tuple[int, ...]:
    """Devices on each of so many nodes, as evenly as they go."""
    each = -(-devices // nodes)
    full, rest = divmod(devices, each)
    return (each,) * full + ((rest,) if rest else ())
