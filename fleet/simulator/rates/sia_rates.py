"""Step times on several kinds of device, and gradient noise, as Sia's workloads have them (SOSP'23)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.simulator.rates.pollux_rates import (
    MANY_NODES,
    VALIDATION,
    Epochs,
    StepTime,
    StepTimes,
    batch_in_name,
    read_epochs,
    read_steps,
)
from fleet.simulator.rates.rates import UnknownRate, unknown
from fleet.simulator.traces.job import TraceJob
from fleet.simulator.traces.problem import TraceError, TraceProblem
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
