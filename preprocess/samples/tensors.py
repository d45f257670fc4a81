"""Samples in shared memory as tensors."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from preprocess.samples.layout import Array

if TYPE_CHECKING:
    import torch


def tensor_in_place(samples: Array) -> torch.Tensor:
    """Return a tensor on the memory of an array, also where that is read only: it must not be written to then.

    torch cannot express that, and warns of it once.
    """
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(samples)
