"""A batch of inputs and targets as the preprocessors ship it -> as a network and its loss take it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fleet.spec.sections import Normalise
from preprocess import SampleLayout

_IDS = ("uint16", "uint32", "uint64")
"""dtypes in which ids travel; torch has hardly any operations on them."""
_SMALL_TARGETS = (*_IDS, "int32")


class InputPreparation:
    """Turns images of bytes into normalised floats and ids into int64, on the device of the batch; passes all else on.

    Images are uint8 of shape (samples, height, width, channels) or (samples, height, width) and become float32
    (samples, channels, height, width), as x / 255, then (x - mean) / std per channel if ``normalise`` is given.
    Ids are uint16, uint32 or uint64. Other tensors keep their layout; with ``normalise`` they become float32 and
    (x - mean) / std along axis 1.
    Where ``normalise`` names another dtype, the float32 result is rounded to it, to nearest even.
    """

    def __init__(self, normalise: Normalise | None) -> None:
        self._normalise = normalise
        self._constants: dict[tuple[torch.device, int, int], tuple[Tensor, Tensor]] = {}

    def __call__(self, inputs: Any) -> Any:
        """Return the prepared inputs; the given tensor is not changed.

        Raises:
            ValueError: ``normalise`` does not have as many values as the inputs have channels.
        """
        if not isinstance(inputs, Tensor):
            return inputs
        if is_image_batch(inputs):
            images = inputs.unsqueeze(-1) if inputs.dim() == 3 else inputs
            scaled = _channels_first(images).div_(255)
            return scaled if self._normalise is None else self._normalised(scaled)
        if self._normalise is None:
            return prepared_ids(inputs)
        return self._normalised(inputs.to(torch.float32, copy=True))

    def copies(self, layout: SampleLayout) -> bool:
        """Whether a batch of such samples is made into a tensor of its own, so that the given one may be shared."""
        image = layout.input_dtype == "uint8" and len(layout.input_shape) in (2, 3)
        return image or self._normalise is not None or layout.input_dtype in _IDS

    def _normalised(self, values: Tensor) -> Tensor:
        """(x - mean) / std along axis 1, in place, in the order of torchvision's Normalize; then rounded."""
        assert self._normalise is not None
        mean, std = self._constants_for(values)
        return values.sub_(mean).div_(std).to(getattr(torch, self._normalise.dtype))

    def _constants_for(self, values: Tensor) -> tuple[Tensor, Tensor]:
        channels = values.shape[1] if values.dim() > 1 else 1
        key = (values.device, values.dim(), channels)
        if key not in self._constants:
            assert self._normalise is not None
            given = len(self._normalise.mean)
            if given not in (1, channels):
                rule = f"normalise has {given} values, and the inputs have {channels} channels"
                raise ValueError(
                    f"{rule} (shape {tuple(values.shape)}): give mean and std {channels} values, or one for all"
                )
            shape = (-1, *(1,) * (values.dim() - 2))
            mean = torch.tensor(self._normalise.mean, dtype=torch.float32, device=values.device).reshape(shape)
            std = torch.tensor(self._normalise.std, dtype=torch.float32, device=values.device).reshape(shape)
            self._constants[key] = (mean, std)
        return self._constants[key]


def _channels_first(images: Tensor) -> Tensor:
    """Float32 of shape (samples, channels, height, width), with that shape's own strides.

    With one channel a permuted tensor counts as contiguous whatever its strides are, so `contiguous()` leaves them;
    oneDNN's convolutions (torch 2.13) then take it for channels-last and write past their buffers in the backward
    pass.
    """
    moved = images.permute(0, 3, 1, 2)
    return torch.empty(moved.shape, dtype=torch.float32, device=moved.device).copy_(moved)


def prepared_ids(inputs: Tensor) -> Tensor:
    """Return ids of uint16, uint32 and uint64 as int64, and all else as it is."""
    return inputs.to(torch.int64) if _name(inputs) in _IDS else inputs


def prepared_targets(targets: Any) -> Any:
    """Return targets as losses take them: whole numbers that torch's losses do not know (ids, int32) become int64."""
    if isinstance(targets, Tensor) and _name(targets) in _SMALL_TARGETS:
        return targets.to(torch.int64)
    return targets


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def is_image_batch(inputs: Tensor) -> bool:
    """Whether a batch holds images of bytes."""
    return inputs.dtype == torch.uint8 and inputs.dim() in (3, 4)
