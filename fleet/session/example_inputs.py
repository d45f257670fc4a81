"""A few inputs of a job's network, as preprocessors make them."""

from __future__ import annotations

import torch
from torch import Tensor

from fleet.spec import EnsembleSpec, Job
from fleet.spec.job import data_key
from fleet.workers.agreement import BadInput
from fleet.workers.datasets import dataset_specs
from preprocess import Dataset
from preprocess.files.modules import at_home
from preprocess.samples.order import HELD_OUT, TRAIN


def example_inputs(spec: EnsembleSpec, job: Job, samples: int = 2) -> Tensor:
    """Return the first inputs of a job's data as a batch, from what is held out where anything is.

    Raises:
        BadInput: samples are put together by the job's own code.
        SourceError, TransformError: the data cannot be read.
    """
    key = data_key(job)
    if key in spec.data and spec.data[key].collate is not None:
        raise BadInput(
            f"the batches of job {job.name} are made by `collate`, so no example of its inputs is known here"
        )
    with at_home(spec.folder):
        data = Dataset(dataset_specs(spec.with_jobs((job,)))[key])
        kind, there = (HELD_OUT, data.held_out) if data.held_out else (TRAIN, data.length)
        inputs, targets = data.layout.empty(samples)
        for row in range(samples):
            data.make(kind, job.order_seed, 0, row % there, inputs[row], targets[row : row + 1])
    return torch.from_numpy(inputs)
