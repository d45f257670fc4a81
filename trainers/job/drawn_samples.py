"""Training samples that are drawn by weights, as a script does by torch's WeightedRandomSampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.task.unfit_task import UnfitTask


class DrawnSamples:
    """A data set that gives, in each epoch, as many samples as another has, drawn from it with replacement.

    The draw of an epoch is that of `WeightedRandomSampler(weights, len(dataset))` with a generator that is seeded with
    seed + epoch; DistributedSampler then splits it over ranks as it splits any order.
    """

    shuffles_itself = True  # see `trainers.job.single_job.shuffles_itself`

    def __init__(self, dataset: Any, weights: Any, seed: int, job: str) -> None:
        """weights: one for each sample. UnfitTask if there are others."""
        self._dataset, self._seed = dataset, seed
        self._weights = _checked(weights, len(dataset), job)
        self.at_epoch(0)

    def __len__(self) -> int:
        return len(self._dataset)

    def at_epoch(self, epoch: int) -> None:
        """Give the samples of this epoch from now on."""
        if callable(getattr(self._dataset, "at_epoch", None)):
            self._dataset.at_epoch(epoch)
        generator = torch.Generator().manual_seed(self._seed + epoch)
        self._order: list[int] = torch.multinomial(self._weights, len(self), True, generator=generator).tolist()

    def __getitem__(self, place: int) -> Any:
        return self._dataset[self._order[place]]

    def __getitems__(self, places: Sequence[int]) -> list[Any]:
        indices = [self._order[place] for place in places]
        if callable(getattr(self._dataset, "__getitems__", None)):
            return list(self._dataset.__getitems__(indices))
        return [self._dataset[index] for index in indices]


def _checked(weights: Any, length: int, job: str) -> Tensor:
    try:
        found = torch.as_tensor(weights, dtype=torch.double).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnfitTask(f"job {job}: sample_weights(dataset) gives a {type(weights).__name__}; {_MEND}") from error
    if found.shape != (length,):
        told = f"weights of shape {tuple(found.shape)} for {length} training samples"
        raise UnfitTask(f"job {job}: sample_weights(dataset) gives {told}; {_MEND}")
    if not bool(found.isfinite().all()) or bool((found < 0).any()) or not float(found.sum()) > 0:
        raise UnfitTask(f"job {job}: some of sample_weights(dataset) are negative or not finite, or all are 0; {_MEND}")
    return found


_MEND = "give a number of at least 0 for each training sample, as WeightedRandomSampler takes them"
