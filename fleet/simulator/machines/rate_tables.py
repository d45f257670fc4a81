"""Tables of measured rates: steps per second by model, batch size and number of devices, and batches between."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.kinds import FILE as KIND_FILE
from fleet.simulator.machines.kinds import read_kind_rates
from fleet.simulator.machines.machine import Costs, MeasuredMachine, Rates, unknown
from fleet.simulator.traces.table import TraceError, TraceProblem, TraceTable, read_table
from fleet.simulator.traces.trace import TraceJob
from fleet.spec.references import ReferenceProblem, resolve
from preprocess.files.modules import importable

BATCH = "global_batch_size"
MOST_DEVICES = 1_000_000
PAPERS = {
    "*/placements.csv": "benchmarks.papers.pollux_machine:read_pollux_rates",
    "*/placements-*.csv": "benchmarks.papers.sia_machine:read_sia_rates",
}
"""Files of rates in forms of other people's artifacts, and what reads them, in fleet's repository."""


class RateTable:
    """Rates that were measured at some counts of devices (ElasticFlow, ASPLOS'23, 6.1).

    At a measured count the rate is the measured one; between two it lies on the straight line through them; below the
    first it is proportional to the count; beyond the last it stays as it is there. So none exceeds the measured peak.

    Args:
        measured: (model, global batch size) -> devices -> steps/s; at least one each.

    Raises:
        ValueError: nothing measured, or a number that no machine can show.
    """

    def __init__(self, measured: Mapping[tuple[str, int], Mapping[int, float]]) -> None:
        self._measured = {key: _checked(key, points) for key, points in sorted(measured.items())}
        self._tables = {key: _tabulated(points) for key, points in self._measured.items()}
        self._longer: dict[tuple[str, int], Floats] = {}

    @property
    def models(self) -> tuple[str, ...]:
        """The models, by name."""
        return tuple(dict.fromkeys(model for model, _ in self._measured))

    def batches(self, model: str) -> tuple[int, ...]:
        """The global batch sizes of a model, ascending.

        Raises:
            UnknownRate: the model was not measured.
        """
        found = tuple(batch for name, batch in self._measured if name == model)
        if not found:
            raise unknown("model", model, self.models)
        return found

    def measured(self, model: str, batch: int) -> Mapping[int, float]:
        """Devices -> steps/s, as measured, ascending.

        Raises:
            UnknownRate: the model, or that batch size of it, was not measured.
        """
        return self._measured[self._key(model, batch)]

    def rates(self, model: str, batch: int, limit: int) -> Floats:
        """Steps/s on 1 .. limit devices; float64 of shape (limit,), read-only.

        Raises:
            UnknownRate: as `measured`.
        """
        key = self._key(model, batch)
        table = self._longer.get(key, self._tables[key])
        if len(table) < limit:
            table = np.concatenate((table, np.full(limit - len(table), table[-1])))
            table.flags.writeable = False
            self._longer[key] = table
        return table[:limit]

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`."""
        if job.batch_size is None:
            raise unknown("batch size", "", self.batches(job.model))
        return self.rates(job.model, job.batch_size, limit)

    def machine(self, cluster: Cluster, costs: Costs, guaranteed: int | None = None) -> MeasuredMachine:
        """As `Rates.machine`."""
        return MeasuredMachine(cluster, self, costs, guaranteed)

    def peak(self, model: str, batch: int) -> int:
        """The smallest measured count with the highest rate: more devices do not help.

        Raises:
            UnknownRate: as `measured`.
        """
        points = self.measured(model, batch)
        return max(points, key=lambda count: points[count])

    def curve(self, model: str, batch: int, per_node: int = 8) -> RateCurve:
        """Return what was measured as a rate curve, samples/s; it stays as it is beyond the last measured count.

        Raises:
            UnknownRate: as `measured`.
        """
        points = {count: rate * batch for count, rate in self.measured(model, batch).items()}
        return RateCurve(points, per_node, limit=max(points))

    def _key(self, model: str, batch: int) -> tuple[str, int]:
        if (model, batch) not in self._measured:
            raise unknown(f"batch size of {model}", batch, self.batches(model))
        return model, batch


def read_rate_table(folder: str | Path) -> RateTable:
    """Read a folder of files MODEL.csv, each a row for a global batch size, a column for a number of devices.

    An empty cell was not measured, nor were those at the end of a row that say nan.

    Raises:
        TraceError: with everything that is wrong in all of the files.
    """
    folder = Path(folder)
    files = sorted(folder.glob("*.csv")) if folder.is_dir() else [folder]
    if not files:
        raise TraceError.of(folder, "there is no .csv file in it", "name a folder of MODEL.csv files")
    measured: dict[tuple[str, int], dict[int, float]] = {}
    problems: list[TraceProblem] = []
    for file in files:
        try:
            table = read_table(file)
            rows = _read_model(table)
            problems += table.problems
            measured |= {(file.stem, batch): points for batch, points in rows.items()}
        except TraceError as error:
            problems += error.problems
    if problems:
        raise TraceError(problems)
    return RateTable(measured)


def read_rates(path: str | Path) -> Rates:
    """Read rates in whichever of the known forms the folder, or file, has: ElasticFlow's, EasyScale's, or of PAPERS.

    Raises:
        TraceError: there are none, or they cannot be used; it tells of everything that is wrong.
    """
    path = Path(path)
    if not path.exists():
        raise TraceError.of(path, "there is no such file or folder", "name a folder of measured rates")
    if (path / KIND_FILE).is_file() or path.name == KIND_FILE:
        return read_kind_rates(path)
    for pattern, reader in PAPERS.items() if path.is_dir() else ():
        if any(path.glob(pattern)):
            return _read_by(reader, path)
    return read_rate_table(path)


def _read_by(reader: str, path: Path) -> Rates:
    try:
        with importable([Path.cwd()]):
            read: Callable[[Path], Rates] = resolve(reader)
    except ReferenceProblem:
        rule = f"rates of this form are read by {reader}, which is in fleet's repository and not in the package"
        raise TraceError.of(path, rule, "run this where the folder benchmarks is") from None
    return read(path)


def _read_model(table: TraceTable) -> dict[int, dict[int, float]]:
    """Batch size -> devices -> steps/s; mistakes are left in `table.problems`."""
    whole = [name for name in table.columns if name.isdecimal() and len(name) <= len(str(MOST_DEVICES))]
    counts = {int(name): name for name in whole if 0 < int(name) <= MOST_DEVICES}
    if BATCH not in table.columns or not counts:
        there = ", ".join(table.columns)
        rule = f"a table of rates has a column {BATCH} and one for each number of devices; there are: {there}"
        table.problems.append(TraceProblem(table.file, rule, "name its columns so: global_batch_size,1,2,4", 1))
        return {}
    for name in [name for name in table.columns if name != BATCH and name not in counts.values()]:
        rule = f"{name[:40]!r} is no number of devices, 1 to {MOST_DEVICES:,}"
        table.problems.append(TraceProblem(table.file, rule, "name the column by its number", 1, name))
    table.names(BATCH)
    batches = table.numbers(BATCH, least=1, whole=True)
    ordered = [counts[count] for count in sorted(counts)]
    _clear_unmeasured(table, ordered)
    columns = [table.numbers(name, least=0, above=True, optional=True) for name in ordered]
    grid = np.stack(columns, axis=1)
    rows: dict[int, dict[int, float]] = {}
    for row, batch in enumerate(batches.tolist()):
        points = {count: rate for count, rate in zip(sorted(counts), grid[row].tolist()) if not math.isnan(rate)}
        if not any(table.columns[name][row].strip() for name in ordered):
            table.blame(row, BATCH, "no rate stands in this line", "add one, or leave the line out")
        elif points and not math.isnan(batch):
            rows[int(batch)] = points
    return rows


def _clear_unmeasured(table: TraceTable, ordered: Sequence[str]) -> None:
    """Empty the cells at the end of each row that say nan; one before a number is a mistake, and stays."""
    for row in range(len(table)):
        for name in reversed(ordered):
            text = table.columns[name][row].strip().lower()
            if text not in ("", "nan"):
                break
            table.columns[name][row] = ""


def _checked(key: tuple[str, int], points: Mapping[int, float]) -> dict[int, float]:
    model, batch = key
    if not points:
        raise ValueError(f"{model}, batch size {batch}: a table of rates needs at least one measurement")
    for count, rate in points.items():
        if count < 1 or not (math.isfinite(rate) and rate > 0):
            raise ValueError(
                f"{model}, batch size {batch}: {rate} steps/s on {count} devices; a rate is above 0 and finite"
            )
    return {int(count): float(rate) for count, rate in sorted(points.items())}


def _tabulated(points: Mapping[int, float]) -> Floats:
    """r(1) .. r(last measured)."""
    known, values = np.array(list(points)), np.array(list(points.values()))
    counts = np.arange(1, known[-1] + 1)
    table: Floats = np.interp(counts, known, values)
    table[: known[0] - 1] = values[0] / known[0] * counts[: known[0] - 1]
    table[known - 1] = values
    table.flags.writeable = False
    return table


class BatchRates:
    """A table of rates whose batch sizes are the ends and corners of ranges.

    Args:
        table: steps/s by model, batch size and devices.
    """

    def __init__(self, table: RateTable) -> None:
        self.table = table

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`: with the job's own batch."""
        return self.table.of(job, limit)

    def machine(self, cluster: Cluster, costs: Costs, guaranteed: int | None = None) -> BatchRangeMachine:
        """As `Rates.machine`: a policy may give its jobs any batch between the measured ones."""
        return BatchRangeMachine(cluster, self, costs, guaranteed)

    def scaling(self, model: str, most: int) -> BatchSurface:
        """How fast a model trains with any batch, on up to `most` devices.

        Raises:
            UnknownRate: the model was not measured.
        """
        batches = self.table.batches(model)
        steps = np.stack([self.table.rates(model, batch, most) for batch in batches])
        return BatchSurface(batches, 1 / steps)


@dataclass(frozen=True, eq=False)
class BatchSurface:
    """T(b, k) = b / t(b, k), samples/s; a `Scaling`. t lies on the straight line between the measured batches.

    Attributes:
        batches: those that were measured, ascending.
        seconds: t(b, k), of a step with each of them on k = 1, 2, ... devices; shape (batches, devices).
    """

    batches: Sequence[int]
    seconds: Floats

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`; 0 for a batch outside the measured ones. None: the largest. Nodes do not matter."""
        chosen = self.batches[-1] if batch is None else batch
        if not self.batches[0] <= chosen <= self.batches[-1]:
            return 0.0
        return chosen / float(np.interp(chosen, self.batches, self.seconds[:, devices - 1]))

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`, with the smallest batch; kinds are alike."""
        return 1 / float(self.seconds[0, 0])


class BatchRangeMachine(MeasuredMachine):
    """A `MeasuredMachine` whose jobs may get another batch from a policy, of those between the measured ones.

    Args:
        cluster: nodes and devices.
        rates: the measured rates.
        costs: costs of moves.
        guaranteed: priority from which a job is a guaranteed one; None: none is.
    """

    def __init__(self, cluster: Cluster, rates: BatchRates, costs: Costs, guaranteed: int | None = None) -> None:
        super().__init__(cluster, rates, costs, guaranteed)
        self._ranges = rates
        self._scalings: dict[str, BatchSurface] = {}

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`."""
        scaling = self._scaling(job.model)
        return super().arriving(job).changed(scaling=scaling, batches=(scaling.batches[0], scaling.batches[-1]))

    def _scaling(self, model: str) -> BatchSurface:
        if model not in self._scalings:
            self._scalings[model] = self._ranges.scaling(model, self._cluster.size)
        return self._scalings[model]
