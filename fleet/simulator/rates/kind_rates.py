"""Seconds of a mini-batch on each kind of device, as EasyScale's artifact has them (Li et al., SC'23)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.simulator.rates.rates import unknown
from fleet.simulator.traces.job import TraceJob
from fleet.simulator.traces.table import TraceTable, read_table

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
