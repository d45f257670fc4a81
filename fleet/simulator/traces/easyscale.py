"""The workload of EasyScale's trace experiment (Li et al., SC'23, 5.2, and the paper's artifact)."""

from __future__ import annotations

import numpy as np

from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.table import TraceTable
from fleet.simulator.traces.trace import Trace

FORMAT = "easyscale"
AS_SIMULATED = "easyscale-as-simulated"
MIXED = "enable_heterogeneous_deterministic"
COLUMNS = ("name", "time", "application", "max_parallelism", "batch_size", "epochs", MIXED, "preferred_gpu")
EPOCH_SAMPLES = {
    "resnet50": 12_800.0, "vgg19": 12_800.0, "shufflenetv2": 12_800.0, "swintransformer": 12_800.0, "yolov3": 165.51,
    "bert": 886.41, "electra": 886.41, "ncf": 49_708.45,
}  # fmt: skip
"""Samples of an epoch in the artifact's simulator: a hundredth of each data set."""


def read_easyscale(table: TraceTable, format: str = FORMAT) -> Trace:
    """Read columns named as COLUMNS; `batch_size` is one virtual worker's, `max_parallelism` their number N.

    The artifact's file has a last column without a name. Where a row was not copied and edited it is a tenth of the
    epochs; the artifact's simulator never reads it, and nor does this.

    Names repeat in that file. All its rows are jobs here, and the later ones of a name are numbered. In the artifact's
    simulator a later row takes the place of an earlier one of its name: that is format AS_SIMULATED.

    Raises:
        TraceError: with every cell that is wrong.
    """
    table.require(COLUMNS, format)
    names, models = table.texts("name"), table.texts("application")
    arrival = table.numbers("time", least=0)
    workers = table.numbers("max_parallelism", least=1, whole=True)
    batch = table.numbers("batch_size", least=1, whole=True) * workers
    epochs = table.numbers("epochs", least=0, above=True)
    mixed = table.numbers(MIXED, least=0, whole=True) > 0  # one row says 40; the artifact takes it for a yes
    kinds = table.texts("preferred_gpu")
    table.finish()
    samples = epochs * np.array([EPOCH_SAMPLES.get(model.lower(), np.nan) for model in models])
    jobs = JobColumns.of(
        name=_numbered(names),
        arrival=arrival,
        model=[model.lower() for model in models],
        devices=workers,
        batch_size=batch,
        work=samples / batch,
        samples=samples,
        limit=workers,
        workers=workers,
        epochs=epochs,
        kind=[kind.lower() for kind in kinds],
        mixed=mixed,
        line=table.lines,
    )
    return _trace(table, names, jobs, format)


def read_easyscale_as_simulated(table: TraceTable) -> Trace:
    """The jobs that the artifact's simulator runs: the last of the rows with one name, where the first stood."""
    return read_easyscale(table, AS_SIMULATED)


def _trace(table: TraceTable, names: list[str], jobs: JobColumns, format: str) -> Trace:
    repeated = len(names) - len(set(names))
    if not repeated:
        return Trace.of(jobs, table.file, format)
    if format == FORMAT:
        note = f"{repeated} rows repeat a name; they were numbered: NAME#2, NAME#3"
        return Trace.of(jobs, table.file, format, (note,))
    last = {name: row for row, name in enumerate(names)}  # a dict keeps the place of the first
    kept = jobs.take(np.array(list(last.values())))
    note = f"{repeated} rows were replaced by later ones of their name, as the artifact's simulator does"
    return Trace.of(kept.renamed(last), table.file, format, (note,))


def _numbered(names: list[str]) -> list[str]:
    seen = dict.fromkeys(names, 0)
    told = []
    for name in names:
        seen[name] += 1
        told.append(name if seen[name] == 1 else _unused(name, seen))
    return told


def _unused(name: str, seen: dict[str, int]) -> str:
    while (numbered := f"{name}#{seen[name]}") in seen:
        seen[name] += 1
    return numbered
