"""The task of a run's job with the samples that the run's preprocessors made, for a job that trains alone."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleet.run.ranks.runtime import data_key, dataset_specs
from fleet.run.replay.recorded_job import RecordedJob
from fleet.spec import SpecTask, importable
from preprocess import HELD_OUT, TRAIN, Dataset
from trainers.repeatable.random_state import RandomState
from trainers.tree import decode

_CPU = torch.device("cpu")


class ReplayedTask(SpecTask):
    """A job of a run, as `fleet train` takes it: its data sets give the samples that the run trained it on.

    Its modules stay importable for as long as the process lives.

    Args:
        directory: of the run.
        job: its name.

    Raises:
        BadInput, SpecError: see `RecordedJob.read`.
    """

    def __init__(self, directory: str, job: str) -> None:
        self._recorded = recorded = RecordedJob.read(Path(directory), job)
        self._modules = ExitStack()
        self._modules.enter_context(importable(recorded.folders))
        data = recorded.spec.data[recorded.job.data] if recorded.job.data is not None else None
        self._opened: Dataset | None = None
        batches = None if recorded.job.batch is None else recorded.batches(self._dataset().length)
        super().__init__(recorded.job, data, batches)

    def dataset(self, train: bool) -> ReplayedSamples | None:
        """The samples as preprocessors make them; held-out ones: None where the run has none."""
        opened = self._dataset()
        if not train and not opened.held_out:
            return None
        return ReplayedSamples(opened, TRAIN if train else HELD_OUT, self.order_seed, hasattr(self, "collate"))

    def _dataset(self) -> Dataset:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> Dataset:
        key = data_key(self._recorded.job)
        opened = Dataset(dataset_specs(self._recorded.spec)[key])
        for kind, samples in self._recorded.skipped(key).items():
            opened.skip_always(kind, samples)
        return opened


class ReplayedSamples:
    """A map-style data set of a run's samples in one epoch after another.

    Args:
        data: makes them.
        kind: those to train on, or those held out.
        seed: of the samples' order and augmentation.
        packed: whether each sample is packed in bytes, for a task that collates them itself.
    """

    def __init__(self, data: Dataset, kind: str, seed: int, packed: bool) -> None:
        self._data, self._kind, self._seed, self._packed = data, kind, seed, packed
        self._epoch = 0

    def __len__(self) -> int:
        return self._data.length if self._kind == TRAIN else self._data.held_out

    def at_epoch(self, epoch: int) -> None:
        """Give the samples of this epoch from now on."""
        self._epoch = epoch

    def __getitem__(self, index: int) -> Any:
        """One sample, (input, target); what it draws is its own, so the caller's generators stay as they are."""
        before = RandomState.now(_CPU)
        try:
            inputs, target = self._made(index)
        finally:
            before.set(_CPU)
        return decode(inputs.tobytes()) if self._packed else (_tensor(inputs), _tensor(target)[0])

    def _made(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        layout = self._data.layout
        inputs, target = layout.empty(1)
        self._data.make(self._kind, self._seed, self._epoch, index, inputs[0], target)
        return inputs[0], target


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array)
