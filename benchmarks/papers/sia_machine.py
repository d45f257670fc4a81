"""The machine of Sia: goodput by kind, placement, batch and epoch (Jayaram Subramanya et al., SOSP'23)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.papers.pollux_machine import (
    MANY_NODES,
    VALIDATION,
    Epochs,
    StepTime,
    StepTimes,
    batch_in_name,
    read_epochs,
    read_steps,
)
from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.variable_batch.kind_goodput import Shapes
from fleet.simulator.machines.kinds import check_kinds
from fleet.simulator.machines.machine import Adapting, Costs, UnknownRate, arrived, unknown
from fleet.simulator.traces.table import TraceError, TraceProblem
from fleet.simulator.traces.trace import TraceJob
from preprocess.files.reading import read_json

PLACEMENTS, SCALABILITY, CONSTANTS = "placements-{}.csv", "scalability-{}.csv", "config.json"
DEFAULT_RESTART = 30.0
"""Seconds of a restart where nobody says more; as their simulator has them."""


@dataclass(frozen=True)
class KindProfile:
    """What was measured of an application on one kind of device.

    Attributes:
        placements: devices on each node, in the smallest rotation -> steps.
        scalability: (nodes, devices) -> steps, for larger clusters.
        min_local, max_local: samples of a device, the fewest and the most.
    """

    placements: Mapping[tuple[int, ...], StepTimes]
    scalability: Mapping[tuple[int, int], StepTimes]
    min_local: int
    max_local: int

    def step(self, placement: tuple[int, ...], local: float) -> StepTime:
        """One step on so many devices of each node, with `local` samples on each device."""
        known = self.placements.get(placement)
        if known is not None:
            return known.at(local)
        key = min(len(placement), MANY_NODES), sum(placement), local
        between = self._between.get(key)
        if between is None:
            between = self._between[key] = StepTime(*map(float, self._surface(*key)))
        return between

    def largest_local(self, placement: tuple[int, ...]) -> int:
        """Most samples of a device there."""
        known = self.placements.get(placement)
        if known is not None:
            return int(known.local[-1])
        nodes, devices = len(placement), sum(placement)
        larger = [steps.local[-1] for key, steps in self.scalability.items() if key[0] >= nodes and key[1] >= devices]
        return int(max(larger, default=self.max_local))

    @cached_property
    def largest_of_count(self) -> Mapping[int, int]:
        """Devices -> most samples of one of them, on any of the measured placements of so many."""
        most: dict[int, int] = {}
        for placement, steps in self.placements.items():
            most[sum(placement)] = max(most.get(sum(placement), 0), int(steps.local[-1]))
        return most

    @cached_property
    def single(self) -> float:
        """Samples/s of one device at the largest batch that fits."""
        alone = self.placements.get((1,)) or next(iter(self.placements.values()))
        return float(alone.local[-1] / alone.seconds.max())

    @cached_property
    def _between(self) -> dict[tuple[float, float, float], StepTime]:
        """What `_surface` has told so far: the same steps are asked for again and again."""
        return {}

    @cached_property
    def _surface(self) -> Any:
        """Straight lines between all that was measured, over nodes, devices and samples of a device."""
        from scipy.interpolate import LinearNDInterpolator

        found: dict[tuple[float, float, float], list[tuple[float, float]]] = {}
        for placement, steps in self.placements.items():
            for local, seconds, sync in zip(*steps):
                key = float(len(placement)), float(sum(placement)), float(local)
                found.setdefault(key, []).append((float(seconds), float(sync)))
        points = [(*key, *np.mean(times, axis=0)) for key, times in sorted(found.items())]
        for (nodes, devices), steps in self.scalability.items():
            points += [(nodes, devices, *row) for row in zip(*steps)]
        table = np.array(points, dtype=np.float64)
        between = LinearNDInterpolator(table[:, :3], table[:, 3:])

        def at(nodes: float, devices: float, local: float) -> Floats:
            inside: Floats = between([nodes, devices, local])[0]
            if not np.isnan(inside).any():
                return inside
            nearest = np.abs((table[:, :3] - (nodes, devices, local)) / table[:, :3].max(axis=0)).sum(axis=1).argmin()
            return table[nearest, 3:]

        return at


@dataclass(frozen=True, eq=False)
class SiaApplication:
    """One network of Sia's workloads.

    Attributes:
        kinds: kind of device -> what was measured there.
        validation: global batch size, ascending -> what each epoch brought.
        epochs: how many a job trains.
        restart: seconds that getting other devices takes.
        penalty: seconds that a job takes a restart to cost.
        slowdown: how many times as long as was measured everything takes.
    """

    kinds: Mapping[str, KindProfile]
    validation: Mapping[int, Epochs]
    epochs: int
    restart: float = DEFAULT_RESTART
    penalty: float = DEFAULT_RESTART
    slowdown: float = 1.0

    @property
    def initial_batch(self) -> int:
        """The smallest global batch size, whose steps `progress` counts."""
        return next(iter(self.validation))

    @property
    def largest_batch(self) -> int:
        """The largest global batch size."""
        return list(self.validation)[-1]

    @cached_property
    def ends(self) -> Floats:
        """Progress at the end of each epoch, the least over all batch sizes; shape (epochs,)."""
        most: Floats = np.min([each.progress[: self.epochs] for each in self.validation.values()], axis=0)
        return most

    def noise(self, batch: float, epoch: int) -> tuple[float, float]:
        """Squared length of the mean gradient, and variance of a gradient; between two sizes the straight line."""
        sizes = list(self.validation)
        if not sizes[0] <= batch <= sizes[-1]:
            raise unknown("batch size", batch, sizes)
        return (
            float(np.interp(batch, sizes, [each.grad_sqr[epoch] for each in self.validation.values()])),
            float(np.interp(batch, sizes, [each.grad_var[epoch] for each in self.validation.values()])),
        )


def smallest_rotation(placement: Sequence[int]) -> tuple[int, ...]:
    """Devices on each node, as profiles name a placement."""
    held = tuple(count for count in placement if count)
    return min(held[i:] + held[:i] for i in range(len(held)))


class SiaRates:
    """Rates of Sia's applications; a `Rates`.

    Args:
        applications: by name.
    """

    def __init__(self, applications: Mapping[str, SiaApplication]) -> None:
        self._applications = dict(applications)
        self._rates = lru_cache(maxsize=None)(self._computed)

    @property
    def models(self) -> tuple[str, ...]:
        """The applications, by name."""
        return tuple(self._applications)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of device on which all of them were measured."""
        first, *others = self._applications.values()
        return tuple(kind for kind in first.kinds if all(kind in other.kinds for other in others))

    def application(self, model: str) -> SiaApplication:
        """All that was measured of one.

        Raises:
            UnknownRate: there is no such application.
        """
        if model not in self._applications:
            raise unknown("model", model, self._applications)
        return self._applications[model]

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`, on the first kind of device."""
        if job.batch_size is None:
            raise UnknownRate(f"job {job.name} has no batch size; name one")
        application = self.application(job.model)
        application.noise(job.batch_size, 0)  # tells of a batch size that was not measured
        return self._rates(job.model, job.batch_size, limit)

    def _computed(self, model: str, batch: int, limit: int) -> Floats:
        profile = self._applications[model].kinds[self.kinds[0]]
        seconds = [profile.step((count,), math.ceil(batch / count)).seconds for count in range(1, limit + 1)]
        rates: Floats = 1.0 / np.array(seconds)
        rates.flags.writeable = False
        return rates

    def machine(self, cluster: Cluster, costs: Costs, guaranteed: int | None = None) -> SiaMachine:
        """As `Rates.machine`."""
        if guaranteed is not None:
            raise ValueError("jobs with rates of Sia serve nobody; leave --guaranteed out")
        check_kinds(cluster, self.kinds)
        return SiaMachine(cluster, self, costs if costs.most else None)


def read_sia_rates(folder: str | Path) -> SiaRates:
    """Read a folder with one folder for each application: PLACEMENTS, SCALABILITY and the files VALIDATION.

    CONSTANTS in it or in the folder above may say the seconds of restarts, epochs and slowdowns of each application.

    Raises:
        TraceError: with everything that is wrong in all of the files.
    """
    folder = Path(folder)
    constants = _read_constants(folder)
    applications: dict[str, SiaApplication] = {}
    problems: list[TraceProblem] = []
    for place in sorted({file.parent for file in folder.glob("*/" + PLACEMENTS.format("*"))}):
        try:
            applications[place.name] = _read_application(place, constants.get(place.name, {}))
        except TraceError as error:
            problems += error.problems
    if problems:
        raise TraceError(problems)
    if not applications:
        rule = f"no folder in it holds a {PLACEMENTS.format('KIND')}"
        raise TraceError.of(folder, rule, "name the folder above those of the applications")
    return SiaRates(applications)


def _read_constants(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    for file in (folder / CONSTANTS, folder.resolve().parent / CONSTANTS):
        if file.is_file():
            try:
                told: Mapping[str, Mapping[str, Any]] = read_json(file)["apps"]
                return told
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise TraceError.of(file, f"it is no JSON with `apps` ({error})", "mend it or remove it") from None
    return {}


def _read_application(folder: Path, constants: Mapping[str, Any]) -> SiaApplication:
    files = sorted(folder.glob(VALIDATION))
    if not files:
        rule = f"there is no {VALIDATION} in it: progress and gradient noise by batch size"
        raise TraceError.of(folder, rule, "add one for each batch size")
    validation = dict(sorted((batch_in_name(file), read_epochs(file)) for file in files))
    before, after = PLACEMENTS.split("{}")
    kinds = {}
    for file in sorted(folder.glob(PLACEMENTS.format("*"))):
        kind = file.name.removeprefix(before).removesuffix(after)
        kinds[kind] = _read_kind(folder, kind, constants.get("local_bsz", {}).get(kind))
    least = min(len(each.progress) for each in validation.values())
    restart = float(constants.get("rescale_s", DEFAULT_RESTART))
    return SiaApplication(
        kinds,
        validation,
        min(least, int(constants.get("epochs", least))),
        restart,
        float(constants.get("policy_restart_penalty_s", restart)),
        float(constants.get("slowdown", 1.0)),
    )


def _read_kind(folder: Path, kind: str, local: Sequence[int] | None) -> KindProfile:
    placements = {
        tuple(map(int, str(place))): steps
        for (place,), steps in read_steps(folder / PLACEMENTS.format(kind), ("placement",)).items()
    }
    further = folder / SCALABILITY.format(kind)
    spread = read_steps(further, ("num_nodes", "num_replicas")) if further.is_file() else {}
    least = int(min(steps.local[0] for steps in placements.values()))
    most = int(max(steps.local[-1] for steps in placements.values()))
    low, high = local or (least, most)
    return KindProfile(placements, {(key[0], key[1]): steps for key, steps in spread.items()}, low, high)


_TOLERANCE = 1e-5
_LEAST = 1e-8  # of a time, so that its logarithm is finite
_OVERLAP = 10.0  # gamma from which the larger of two times is all that counts


class MeasuredSteps(NamedTuple):
    """Steps that were measured; each of shape (measurements,).

    Attributes:
        nodes, devices: on which they ran.
        local: samples of a device.
        compute: seconds without the exchange of gradients.
        seconds: of the whole step.
    """

    nodes: Floats
    devices: Floats
    local: Floats
    compute: Floats
    seconds: Floats


class StepModel(NamedTuple):
    """T = (T_grad^gamma + T_sync^gamma)^(1/gamma), with T_grad = alpha + beta x local batch (Pollux, Eq. 9 to 11).

    T_sync is 0 on one device, alpha + beta (devices - 2) on one node, and so with another alpha and beta on several.
    """

    alpha_grad: float
    beta_grad: float
    alpha_node: float
    beta_node: float
    alpha_local: float
    beta_local: float
    gamma: float

    def compute(self, local: Floats) -> Floats:
        """Seconds in which gradients of so many samples are computed."""
        return self.alpha_grad + self.beta_grad * local

    def sync(self, nodes: Floats, devices: Floats) -> Floats:
        """Seconds in which gradients are exchanged."""
        further = np.maximum(devices - 2, _LEAST)
        alone = np.where(devices > 1, self.alpha_local + self.beta_local * further, _LEAST + _LEAST * further)
        found: Floats = np.where(nodes > 1, self.alpha_node + self.beta_node * further, alone)
        return found

    def seconds(self, nodes: Floats, devices: Floats, local: Floats) -> Floats:
        """Seconds of a step."""
        compute, sync = self.compute(local), self.sync(nodes, devices)
        found: Floats = np.exp(np.log(compute**self.gamma + sync**self.gamma) / self.gamma)
        return found


def fitted(measured: MeasuredSteps) -> StepModel:
    """The model with the least root mean squared logarithmic errors, as Pollux' agents fit it.

    What no measurement can tell keeps the value that makes more devices look best, so that they are tried.
    """
    from scipy.optimize import Bounds, minimize

    start, low, high = _limits(measured)
    found = minimize(
        _loss, start, args=(measured,), jac=True, bounds=Bounds(low, high, keep_feasible=True), tol=_TOLERANCE
    )
    model = StepModel(*map(float, found.x))
    if (measured.nodes > 1).any():
        return model
    return model._replace(
        alpha_node=max(model.alpha_node, model.alpha_local * 1.1),
        beta_node=max(model.beta_node, model.beta_local * 1.1),
    )


def _limits(measured: MeasuredSteps) -> tuple[Floats, Floats, Floats]:
    """Where the search begins, and between which bounds it stays."""
    start = np.array([1e-1, 1e-2] * 3 + [1.0 + 1e-3])
    low, high = np.array([_LEAST] * 6 + [1.0]), np.array([np.inf] * 6 + [_OVERLAP])
    fixed = []
    if len(np.unique(measured.local)) == 1:
        start[0] = low[0] = high[0] = measured.compute.mean() / 2
    if not (measured.nodes > 1).any():
        fixed += [2, 3]
    if not ((measured.nodes == 1) & (measured.devices > 1)).any():
        fixed += [4, 5]
    if not (measured.devices > 2).any():
        fixed += [3, 5]
    start[fixed] = high[fixed] = _LEAST
    return start, low, high


def _loss(x: Floats, measured: MeasuredSteps) -> tuple[float, Floats]:
    """The sum of both errors and of what keeps gamma and the betas small, and its gradient."""
    model = StepModel(*x)
    compute, sync = model.compute(measured.local), model.sync(measured.nodes, measured.devices)
    powers = compute**model.gamma, sync**model.gamma
    whole = powers[0] + powers[1]
    first, on_first = _error(np.log(compute) - np.log(measured.compute))
    second, on_second = _error(np.log(whole) / model.gamma - np.log(measured.seconds))
    by_compute = on_first / compute + on_second * powers[0] / (compute * whole)
    by_sync = on_second * powers[1] / (sync * whole)
    further = np.maximum(measured.devices - 2, _LEAST)
    apart = measured.nodes > 1
    alone = ~apart & (measured.devices > 1)
    logs = (powers[0] * np.log(compute) + powers[1] * np.log(sync)) / (whole * model.gamma)
    steep = [(model.beta_node, model.alpha_node), (model.beta_local, model.alpha_local)]
    gradient = np.array(
        [
            by_compute.sum(),
            (by_compute * measured.local).sum(),
            by_sync[apart].sum() - 2e-2 * steep[0][0] ** 2 / steep[0][1] ** 3,
            (by_sync * further)[apart].sum() + 2e-2 * steep[0][0] / steep[0][1] ** 2,
            by_sync[alone].sum() - 2e-2 * steep[1][0] ** 2 / steep[1][1] ** 3,
            (by_sync * further)[alone].sum() + 2e-2 * steep[1][0] / steep[1][1] ** 2,
            (on_second * (logs - np.log(whole) / model.gamma**2)).sum() + 2e-3 * (model.gamma - 1),
        ]
    )
    loss = first + second + 1e-3 * (model.gamma - 1) ** 2 + 1e-2 * sum((beta / alpha) ** 2 for beta, alpha in steep)
    return float(loss), gradient


def _error(differences: Floats) -> tuple[float, Floats]:
    """The root mean square, and its derivative by each difference."""
    error = float(np.sqrt((differences**2).mean()))
    return error, differences / (len(differences) * error) if error else np.zeros_like(differences)


CANDIDATES = 50
"""Batch sizes that are looked at, in a geometric series."""
_EDGE = 1e-8  # of a sample

Placement = tuple[int, ...]
Key = tuple[int, int, int]
"""Nodes, devices, and samples of a device in one pass: what a measured step is known by."""
Noise = tuple[float, float]
"""Squared length of the mean gradient, and variance of a gradient."""


class BatchSplit(NamedTuple):
    """A batch as it is trained: samples of a device in one pass, and passes before the last."""

    local: int
    passes: int

    def batch(self, devices: int) -> int:
        """Samples of the whole job."""
        return devices * self.local * (self.passes + 1)


class _Best(NamedTuple):
    """The best of the candidates, by configuration; each of shape (configurations,)."""

    rate: Floats
    local: Counts
    passes: Counts


class SiaAgent:
    """What jobs of an application know, tabulated as it is asked for.

    A job knows the steps that it has measured, by kind of device, and extends them by a fitted `StepModel`. Where it
    was profiled before (`keys` is None) it knows all step times as they are. Of gradient noise it knows what it
    measured last.

    Args:
        application: its measurements.
    """

    def __init__(self, application: SiaApplication) -> None:
        self.application = application
        self.first, self.largest = application.initial_batch, application.largest_batch
        self.fit = cache(self._fit)
        self.tuned = cache(self._tuned)
        self.goodputs = cache(self._goodputs)
        self.noise = cache(application.noise)
        self.goodput = cache(self._goodput)
        self.chosen = cache(self._chosen)
        self._steps = cache(self._profiled_steps)

    def start(self, kind: str, placement: Placement) -> BatchSplit:
        """The batch of a job that knows nothing of a kind yet: its first one, or the smallest that all devices need."""
        profile, devices = self.application.kinds[kind], sum(placement)
        return self.chosen(kind, placement, max(self.first, profile.min_local * devices))

    def _chosen(self, kind: str, placement: Placement, batch: int) -> BatchSplit:
        """A batch size that was asked for, in as few passes as its samples fit in."""
        profile, devices = self.application.kinds[kind], sum(placement)
        local = math.ceil(batch / devices - _EDGE)
        passes = math.ceil(local / profile.largest_local(placement) - _EDGE) - 1
        if devices == 1 and batch > self.first:
            passes = max(1, passes)
        return self._fitting(profile, devices, math.ceil(local / (passes + 1) - _EDGE), passes)

    def _fitting(self, profile: KindProfile, devices: int, local: int, passes: int) -> BatchSplit:
        most = profile.largest_of_count.get(devices, local)
        return BatchSplit(min(local, most, self.largest // (devices * (passes + 1))), passes)

    def splits(self, kind: str, placement: Placement) -> frozenset[BatchSplit]:
        """All batches that a job which chooses its own may have on a placement."""
        profile, devices = self.application.kinds[kind], sum(placement)
        found = self._candidates(profile, np.array([float(devices)]), self.largest, profile.largest_local(placement))
        chosen = (
            self._fitting(profile, devices, local, passes) for local, passes in zip(*(a[:, 0].tolist() for a in found))
        )
        return frozenset((self.start(kind, placement), *chosen))

    def _goodput(self, kind: str, placement: Placement, split: BatchSplit, epoch: int) -> float:
        """What a job truly does, in samples/s of the first batch size: its gain of a step by the seconds of one."""
        step = self.application.kinds[kind].step(placement, split.local)
        seconds = step.seconds + split.passes * (step.seconds - step.sync)
        batch = split.batch(sum(placement))
        gain = _gain(self.noise(batch, epoch), batch / self.first)
        return self.first * float(gain) / (seconds * self.application.slowdown)

    def _fit(self, kind: str, keys: tuple[Key, ...]) -> StepModel:
        profile = self.application.kinds[kind]
        rows = []
        for nodes, devices, local in keys:
            step = profile.step(_even(nodes, devices), local)
            rows.append((nodes, devices, local, step.seconds - step.sync, step.seconds))
        return fitted(MeasuredSteps(*np.array(rows, dtype=np.float64).T))

    def _tuned(self, kind: str, keys: tuple[Key, ...] | None, noise: Noise, placement: Placement) -> BatchSplit:
        """The batch with the highest goodput on a placement, as far as the job knows."""
        profile, devices = self.application.kinds[kind], sum(placement)
        best = self._best(
            kind, keys, noise, ((len(placement), devices),), self.largest, profile.largest_local(placement)
        )
        return self._fitting(profile, devices, int(best.local[0]), int(best.passes[0]))

    def _goodputs(
        self, kind: str, keys: tuple[Key, ...] | None, noise: Noise, shapes: Shapes, most_batch: int
    ) -> Floats:
        """Goodput of each configuration with its best batch of at most `most_batch`, as far as the job knows."""
        most_local = self.application.kinds[kind].max_local
        rates = self._best(kind, keys, noise, shapes, most_batch, most_local, single=keys is not None).rate
        rates.flags.writeable = False
        return rates

    def _best(
        self,
        kind: str,
        keys: tuple[Key, ...] | None,
        noise: Noise,
        shapes: Shapes,
        most_batch: int,
        most_local: int,
        single: bool = False,
    ) -> _Best:
        """The best of a geometric series of batches for each configuration; `single`: in single precision."""
        profile = self.application.kinds[kind]
        nodes, devices = np.array(shapes, dtype=np.float64).T
        chosen = devices.astype(np.float32) if single else devices
        local, passes = self._candidates(profile, chosen, most_batch, most_local)
        batch = devices * local * (passes + 1)
        if keys is None:
            seconds, compute = self._steps_of(kind, shapes, local)
        else:
            model = self.fit(kind, keys)
            samples = local.astype(np.float64)
            seconds, compute = model.seconds(nodes, devices, samples), model.compute(samples)
        rates = self.first * _gain(noise, batch / self.first)
        rates = rates / ((seconds + passes * compute) * self.application.slowdown)
        rates = np.where((local >= profile.min_local) & (local <= most_local), rates, 0.0)
        best = rates.argmax(axis=0), np.arange(len(shapes))
        return _Best(rates[best], local[best], passes[best])

    def _candidates(
        self, profile: KindProfile, devices: npt.NDArray[np.floating[Any]], most_batch: int, most_local: int
    ) -> tuple[Counts, Counts]:
        """Samples of a device and passes before the last of each batch that is looked at; (candidates, configurations).

        Args:
            devices: of each configuration; shape (configurations,). Where they are in single precision, so is the
                series, as in the authors' policy: what it rounds to whole samples may be one more.
        """
        least = np.maximum(np.array(self.first, devices.dtype), np.array(profile.min_local, devices.dtype) * devices)
        wanted = _series(least, most_batch) / devices
        edge = np.array(_EDGE, devices.dtype)
        passes = np.ceil(wanted / np.array(most_local, devices.dtype) - edge) - 1
        alone = (devices == 1) & (wanted > np.array(self.first, devices.dtype) + edge)
        passes = np.where(alone, np.maximum(passes, 1), passes).astype(np.int64)
        return np.ceil(wanted.astype(np.float64) / (passes + 1) - _EDGE).astype(np.int64), passes

    def _steps_of(self, kind: str, shapes: Shapes, local: Counts) -> tuple[Floats, Floats]:
        """Measured seconds of steps, and of a pass before the last, of shape (candidates, configurations)."""
        seconds, compute = np.empty(local.shape), np.empty(local.shape)
        for column, (nodes, devices) in enumerate(shapes):
            known = self._steps(kind, nodes, devices)
            sync = np.interp(local[:, column], known[0], known[2])
            seconds[:, column] = np.interp(local[:, column], known[0], known[1])
            compute[:, column] = seconds[:, column] - sync
        return seconds, compute

    def _profiled_steps(self, kind: str, nodes: int, devices: int) -> tuple[Floats, Floats, Floats]:
        """Samples of a device, seconds of a step with them, and of the exchange of gradients."""
        profile, placement = self.application.kinds[kind], _even(nodes, devices)
        measured = profile.placements.get(placement)
        if measured is not None:
            return measured.local, measured.seconds, measured.sync
        local = np.unique(np.geomspace(profile.min_local, profile.largest_local(placement), 12).round())
        steps = [profile.step(placement, float(size)) for size in local]
        return local, np.array([step.seconds for step in steps]), np.array([step.sync for step in steps])


def _series(least: npt.NDArray[np.floating[Any]], most: int) -> npt.NDArray[np.floating[Any]]:
    """The batches from the least of each configuration to the most, in the precision of the least."""
    if least.dtype == np.float64:
        return np.geomspace(least, most, CANDIDATES)
    begin, end = np.log10(least), np.log10(np.array([most], least.dtype))
    steps = np.arange(CANDIDATES, dtype=least.dtype)[:, np.newaxis]
    exponents = steps * ((end - begin) / np.array(CANDIDATES - 1, least.dtype)) + begin
    series = np.power(10.0, exponents.astype(np.float64)).astype(least.dtype)
    series[0], series[-1] = least, most
    return series


def _gain(noise: Noise, scale: Floats | float) -> Floats | float:
    """How far one step brings a job, in steps of the first batch size (AdaScale; Pollux, Eq. 5)."""
    square, variance = noise
    return (variance + square) / (variance / scale + square)


@cache
def _even(nodes: int, devices: int) -> Placement:
    """Devices on each of so many nodes, as evenly as they go, in the smallest rotation."""
    each, more = divmod(devices, nodes)
    return tuple(sorted([each] * (nodes - more) + [each + 1] * more))


REPORT = 60.0
"""Seconds between two reports of a job; with each it may change its batch."""
_BEFORE = 1e-8
"""Seconds that an epoch ends before a report with which it is over: it ends first, however times are rounded."""
_AFTER = 1e-5
"""Seconds after a report at which an epoch ends that was not over with the report, though its end is rounded to it."""
_WHOLE = 1e-2
"""Seconds by which a time may miss a whole second that it stands for."""


class Stretch(NamedTuple):
    """A part of an epoch in which the job's place and batch stay as they are.

    The books show less and less left, in a straight line to nothing at the rounded end. What is truly left, which a
    move or another batch takes along, falls by the goodput, and is rounded away only at the end.

    Attributes:
        shown: samples left at its begin, as the books have them.
        left: samples truly left then.
        goodput: samples/s.
        seconds: until the epoch ends, if nothing changes.
    """

    shown: float
    left: float
    goodput: float
    seconds: float

    def left_at(self, shown: float) -> float:
        """Samples truly left where the books show so many."""
        gone = 1.0 - shown / self.shown if self.shown > 0 else 1.0
        return max(0.0, self.left - self.goodput * self.seconds * gone)

    @property
    def pace(self) -> float:
        """Samples/s with which the books come to the end of the epoch when it is there."""
        return self.shown / self.seconds if self.shown > 0 else self.goodput


def stretch(shown: float, left: float, goodput: float, since: float) -> Stretch:
    """The stretch that begins at `since`, seconds."""
    return Stretch(shown, left, goodput, _until_end(left / goodput, since))


def _until_end(seconds: float, since: float) -> float:
    begin, whole = round(since), round(seconds)
    if abs(since - begin) > _WHOLE:  # whole seconds mean nothing there
        return max(float(whole), _AFTER)
    end = float(begin + whole)
    if end % REPORT == 0:
        end += _AFTER if seconds > whole else -_BEFORE
    return max(end - since, _AFTER)


_STEPS_OF_E = 20
"""Steps of the logarithm of the gradient noise to which a profiled job's tables are made."""
_SHORTEST = 1e-3
"""Seconds of an epoch that is over within half a second."""


@dataclass(frozen=True)
class OwnRates:
    """What holds for all jobs of an application with one batch size of their own.

    Attributes:
        agent: what jobs of the application know.
        batch: their own batch size, the largest with which a policy reckons.
        curves: kind -> goodput at that batch size by devices, in the mean of the whole training.
        home: the kind that comes first.
        most: as `KindGoodput.most`.
        application: its name.
    """

    agent: SiaAgent
    batch: int
    curves: Mapping[str, RateCurve]
    home: str
    most: int
    application: str

    def samples(self, kind: str, placement: Placement) -> float:
        """Samples/s at the own batch size."""
        split = self.agent.chosen(kind, placement, self.batch)
        application = self.agent.application
        step = application.kinds[kind].step(placement, split.local)
        seconds = step.seconds + split.passes * (step.seconds - step.sync)
        return self.batch / (seconds * application.slowdown)


@dataclass(frozen=True)
class SiaScaling:
    """A job's knowledge in the epoch in which it is; a `KindGoodput`.

    Attributes:
        own: of all jobs like it.
        per_node: kind -> devices of a node.
        epoch: from 0.
        keys: kind -> steps that it has measured there; None: it was profiled before, and knows all.
        noise: of its gradients, as it measured it last; None: it has not.
        kind, placement: where it runs, or ran last.
        split: its batch there.
        coming: the batch that it will have from the next report on.
        measured: whether it has measured its steps there.
        pace: goodput there, samples/s of the first batch size, with which its epoch ends at a whole second.
        stretch: how far its epoch is in truth; None: not told: it has not run, or it was profiled before.
    """

    own: OwnRates
    per_node: Mapping[str, int]
    epoch: int = 0
    keys: Mapping[str, tuple[Key, ...]] | None = None
    noise: Noise | None = None
    kind: str = ""
    placement: Placement = ()
    split: BatchSplit | None = None
    coming: BatchSplit | None = None
    measured: bool = False
    pace: float = 0.0
    stretch: Stretch | None = None

    @property
    def application(self) -> str:
        """As `KindGoodput.application`."""
        return self.own.application

    @property
    def tried(self) -> int:
        """As `KindGoodput.tried`."""
        if self.keys is None:
            return self.own.most
        return max((key[1] for keys in self.keys.values() for key in keys), default=0)

    @property
    def most(self) -> int:
        """As `KindGoodput.most`."""
        return self.own.most

    @property
    def penalty(self) -> float:
        """As `KindGoodput.penalty`."""
        return self.own.agent.application.penalty

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `KindGoodput.rate`."""
        return self.curve_on(self.own.home)(devices)

    def worker_rate(self, kind: str) -> float:
        """As `KindGoodput.worker_rate`."""
        return self.own_rate(kind, 1) / self.own.batch

    def curve_on(self, kind: str) -> RateCurve:
        """As `KindGoodput.curve_on`."""
        return self.own.curves[kind]

    def own_rate(self, kind: str, devices: int) -> float:
        """As `KindGoodput.own_rate`, on nodes that are filled one after another."""
        full, rest = divmod(devices, self.per_node[kind])
        placement = tuple(sorted((self.per_node[kind],) * full + ((rest,) if rest else ())))
        return self.own.samples(kind, placement)

    def goodputs(self, kind: str, shapes: Shapes) -> Floats | None:
        """As `KindGoodput.goodputs`."""
        keys = None if self.keys is None else self.keys.get(kind)
        if self.noise is None or (self.keys is not None and not keys):
            return None
        agent = self.own.agent
        return agent.goodputs(kind, keys, self.noise, shapes, agent.largest if keys is None else self.own.batch)

    def ratio(self, kind: str, other: str) -> float:
        """As `KindGoodput.ratio`."""
        kinds = self.own.agent.application.kinds
        return kinds[kind].single / kinds[other].single

    def landed(self, kind: str, placement: Placement, left: float, tunes: bool, since: float) -> SiaScaling:
        """On other devices since then, with the batch that it chooses there, and so many samples of its epoch left."""
        agent = self.own.agent
        keys = None if self.keys is None else self.keys.get(kind)
        if not tunes:
            split = agent.chosen(kind, placement, self.own.batch)
        elif self.noise is None or (self.keys is not None and not keys):
            split = agent.start(kind, placement)
        else:
            split = agent.tuned(kind, keys, self.noise, placement)
        there = self.with_(kind=kind, placement=placement, split=split, coming=split, measured=not tunes)
        return there.paced(left, since)

    def looked(self) -> SiaScaling:
        """It has measured its steps and the noise of its gradients, and knows which batch it wants next."""
        agent, split = self.own.agent, self.split
        assert split is not None
        devices = sum(self.placement)
        noise = agent.noise(split.batch(devices), self.epoch)
        keys, known = self.keys, None
        if keys is None:
            noise = _rounded(noise)
        if keys is not None:
            key = len(self.placement), devices, split.local
            known = keys.get(self.kind, ())
            if key not in known:
                known = (*known, key)
                keys = {**keys, self.kind: known}
        coming = agent.tuned(self.kind, known, noise, self.placement)
        return self.with_(keys=keys, noise=noise, coming=coming, measured=True)

    def reported(self, left: float, since: float) -> SiaScaling:
        """It has told what it measured, and has the batch that it wants, with so many samples of its epoch left."""
        return self.with_(split=self.coming, measured=False).paced(left, since)

    def after_epoch(self, tunes: bool, looks: bool, since: float) -> SiaScaling:
        """The job's next epoch begins at `since`, with the batch that it wanted by the last one's noise.

        Args:
            tunes: whether it chooses its batch itself.
            looks: whether it measures at once.
        """
        ends, epoch = self.own.agent.application.ends, self.epoch + 1
        whole = float(ends[epoch] - ends[epoch - 1]) * self.own.agent.first
        if not tunes:
            return self.with_(epoch=epoch, stretch=None).paced(whole, since)
        looked = self if self.measured else self.looked()
        there = looked.with_(epoch=epoch, split=looked.coming, measured=False, stretch=None).paced(whole, since)
        return there.looked() if looks else there

    def paced(self, left: float, since: float) -> SiaScaling:
        """At its goodput, so much faster or slower that what is left of its epoch takes whole seconds."""
        assert self.split is not None
        goodput = self.own.agent.goodput(self.kind, self.placement, self.split, self.epoch)
        if self.keys is None:
            seconds = max(round(left / goodput), _SHORTEST)
            return self.with_(pace=left / seconds if left > 0 else goodput)
        truly = left if self.stretch is None else self.stretch.left_at(left)
        there = stretch(left, truly, goodput, since)
        return self.with_(pace=there.pace, stretch=there)

    def with_(self, **fields: Any) -> SiaScaling:
        """Return a copy with other values, which the caller vouches for: several times as fast as `replace`."""
        other: SiaScaling = object.__new__(SiaScaling)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(fields)
        return other


def profiled(scaling: SiaScaling) -> SiaScaling:
    """A job whose application was profiled: it knows all step times, and the noise of its first steps."""
    agent = scaling.own.agent
    return replace(scaling, keys=None, noise=_rounded(agent.noise(agent.first, 0)))


def _rounded(noise: Noise) -> Noise:
    """Only the ratio of both counts; to some per cent, so that tables serve many jobs and epochs."""
    square, variance = noise
    ratio = math.exp(round(math.log(variance / square) * _STEPS_OF_E) / _STEPS_OF_E) if square and variance else 0.0
    return (1.0, ratio) if ratio else noise


MOST_DEVICES = 64
"""No job uses more."""
_LOOK = 0.5  # seconds of steps after which a job has measured them
_ROUNDING = 1e-9  # of a report's interval
_NEAR = 1e-5


class SiaMachine:
    """Jobs that get on as Sia's measurements say; a `StagedMachine`, whose stages are epochs, and reports in them.

    A job's samples are counted at its application's smallest batch size, so that its pace is its goodput. It is done
    when its last epoch is. Epochs end at whole seconds, as in the authors' simulator. Going to as many devices of as
    many nodes of the same kind costs nothing; all other moves cost the restart of the application.

    Args:
        cluster: nodes and devices, each node with its kind.
        rates: the measured rates.
        costs: what a restart costs instead; None: what each application says.
        adapting: what the policy lets jobs do.
    """

    def __init__(
        self, cluster: Cluster, rates: SiaRates, costs: Costs | None = None, adapting: Adapting | None = None
    ) -> None:
        self._cluster, self._rates, self._costs, self._adapting = cluster, rates, costs, adapting or Adapting()
        self._kinds = [kind or rates.kinds[0] for kind in cluster.counts()]
        self._per_node = {kind or rates.kinds[0]: cluster.per_node(kind) for kind in cluster.counts()}
        self._counts = {kind or rates.kinds[0]: count for kind, count in cluster.counts().items()}
        self._own = cache(self._computed_own)
        self._agent = cache(lambda model: SiaAgent(rates.application(model)))
        self._total: dict[str, float] = {}
        self._where = cache(self._placement)

    @property
    def cluster(self) -> Cluster:
        """As `Machine.cluster`."""
        return self._cluster

    def under(self, adapting: Adapting) -> SiaMachine:
        """As `AdaptingMachine.under`."""
        return SiaMachine(self._cluster, self._rates, self._costs, adapting)

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        if job.batch_size is None:
            raise unknown("batch size", "", self._rates.application(job.model).validation)
        own = self._own(job.model, job.batch_size)
        agent = own.agent
        scaling = SiaScaling(own, self._per_node, keys={})
        total = float(agent.application.ends[-1]) * agent.first
        self._total[job.name] = total
        limit = min(self._cluster.size, own.most)
        return arrived(
            job, own.curves[own.home], limit, total, self._costs or Costs(restart=agent.application.restart),
            gang=min(job.devices, limit), mixed_kinds=False, kind="",
            epoch=total / agent.application.epochs, scaling=profiled(scaling) if self._adapting.profiled else scaling,
        )  # fmt: skip

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`: its goodput there, in the epoch in which it is."""
        return (_scaling(job) if job.held else self._landed(job, devices)).pace

    def delay(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.delay`."""
        if self._costs is not None:
            return self._costs.delay(job)
        return _scaling(job).own.agent.application.restart

    def is_free(self, job: JobState, devices: tuple[int, ...]) -> bool:
        """As `AdaptingMachine.is_free`: the kind and the devices of each node stay as they are."""
        kind, placement = self._where(devices)
        scaling = _scaling(job)
        return scaling.kind == kind and scaling.placement == placement

    def lasts(self, job: JobState) -> float:
        """As `StagedMachine.lasts`: until the end of its epoch, or until it reports what changes its batch."""
        scaling = _scaling(job)
        report = _until_report(job, scaling) * job.pace
        return report if _is_last(scaling) else min(self._left(job, scaling), report)

    def begun(self, job: JobState, devices: tuple[int, ...]) -> JobState:
        """As `StagedMachine.begun`: it has chosen its batch there."""
        scaling = self._landed(job, devices)
        return job.changed(scaling=scaling, pace=job.pace if scaling.keys is None else scaling.pace)

    def advanced(self, job: JobState) -> JobState:
        """As `StagedMachine.advanced`."""
        scaling = _scaling(job)
        left, report = self._left(job, scaling), _until_report(job, scaling) * job.pace
        if left <= report:
            end = job.ready + left / job.pace
            between = abs(end / REPORT - round(end / REPORT)) > _NEAR  # else it tells of the last epoch first
            return job.changed(epochs=job.epochs + 1, scaling=scaling.after_epoch(self._adapting.tunes, between, end))
        if not scaling.measured:
            return job.changed(scaling=scaling.looked())
        return job.changed(scaling=scaling.reported(left - report, job.ready + report / job.pace))

    def _landed(self, job: JobState, devices: tuple[int, ...]) -> SiaScaling:
        scaling = _scaling(job)
        return scaling.landed(*self._where(devices), self._left(job, scaling), self._adapting.tunes, job.ready)

    def _left(self, job: JobState, scaling: SiaScaling) -> float:
        """Samples to the end of the epoch."""
        agent = scaling.own.agent
        return float(agent.application.ends[scaling.epoch]) * agent.first - self._total[job.name] + job.remaining

    def _placement(self, devices: tuple[int, ...]) -> tuple[str, Placement]:
        kind = self._cluster.kind_of(devices[0]) or self._kinds[0]
        return kind, smallest_rotation(list(Counter(map(self._cluster.node_of, devices)).values()))

    def _computed_own(self, model: str, batch: int) -> OwnRates:
        agent = self._agent(model)
        application = agent.application
        least = min(application.kinds[kind].min_local for kind in self._kinds)
        most = min(MOST_DEVICES, application.largest_batch // least)
        own = OwnRates(agent, batch, {}, self._kinds[0], most, model)
        curves = {kind: self._curve(own, kind) for kind in self._kinds}
        return OwnRates(agent, batch, curves, self._kinds[0], most, model)

    def _curve(self, own: OwnRates, kind: str) -> RateCurve:
        """Goodput at the own batch size in the mean of all epochs, on nodes that are filled one after another."""
        agent, each = own.agent, self._per_node[kind]
        total = float(agent.application.ends[-1]) * agent.first
        parts = np.diff(agent.application.ends, prepend=0.0) * agent.first
        measured, most = {}, max(each, min(own.most, self._counts[kind]))
        for devices in sorted({1, min(2, each), *range(each, most + 1, each)}):
            placement = (each,) * (devices // each) or (devices,)
            split = agent.chosen(kind, placement, own.batch)
            paces = [agent.goodput(kind, placement, split, epoch) for epoch in range(agent.application.epochs)]
            measured[devices] = total / float((parts / np.array(paces)).sum())
        return RateCurve(measured, each, limit=most)


def _is_last(scaling: SiaScaling) -> bool:
    return scaling.epoch + 1 >= scaling.own.agent.application.epochs


def _until_report(job: JobState, scaling: SiaScaling) -> float:
    """Seconds until the job's batch may change within its epoch; infinite: it does not."""
    if not scaling.measured:
        return _LOOK
    if scaling.coming == scaling.split:
        return math.inf
    return (math.floor(job.ready / REPORT + _ROUNDING) + 1) * REPORT - job.ready


def _scaling(job: JobState) -> SiaScaling:
    if not isinstance(job.scaling, SiaScaling):
        raise ValueError(f"job {job.name} did not arrive on this machine: its goodput is not known")
    return job.scaling
