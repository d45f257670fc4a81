"""A batch as the preprocessors ship it -> as a network and its loss take it; batches of samples of any shape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleet.spec.data import Normalise
from fleet.spec.references import resolve
from fleet.spec.values import Named
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
    """Return whether a batch holds images of bytes."""
    return inputs.dtype == torch.uint8 and inputs.dim() in (3, 4)


Collate = Callable[[list[Any]], Any]


class Pad:
    """Joins samples (input, target), and pads arrays at their ends to the longest of the batch, along each axis.

    Inputs and targets are arrays, tensors and numbers, in dicts, tuples and lists; a list of numbers is an array. A
    number of all samples becomes an array (samples,), an array (samples, ...). Ids of uint16, uint32 and uint64 become
    int64. Text stays a list.

    Args:
        value: what inputs are padded with.
        target_value: what targets are padded with; the default is what cross entropy ignores.
        lengths: each array of the inputs that has axes becomes (array, lengths): how long its first axis was in each
            sample, int64 (samples,).
        mask: likewise (array, mask), or (array, lengths, mask): bool (samples, longest), true where a sample has
            something.
    """

    def __init__(self, value: float = 0, target_value: float = -100, lengths: bool = False, mask: bool = False) -> None:
        self._value, self._target_value = value, target_value
        self._lengths, self._mask = lengths, mask

    def __call__(self, samples: list[Any]) -> tuple[Any, Any]:
        """Return the batch (inputs, targets).

        Raises:
            ValueError: a sample is no pair, or samples differ in more than lengths; the text says where.
        """
        for sample in samples:
            if not (isinstance(sample, (tuple, list)) and len(sample) == 2):
                raise ValueError(f"pad joins samples that are (input, target), and one is a {type(sample).__name__}")
        inputs, targets = zip(*samples)
        return self._joined(inputs, "input", self._told), self._joined(targets, "target", self._padded_target)

    def _joined(self, values: Sequence[Any], where: str, join: Callable[[list[Tensor]], Any]) -> Any:
        first = values[0]
        if len({_kind(value) for value in values}) > 1:
            raise ValueError(f"the {where} of one sample is {_kind(first)}, of another {_kind_unlike(values)}")
        if isinstance(first, Mapping):
            return {key: self._joined([v[key] for v in values], f"{where}[{key!r}]", join) for key in first}
        if isinstance(first, (tuple, list)) and not _is_row(first):
            parts = [self._joined(part, f"{where}[{i}]", join) for i, part in enumerate(zip(*values))]
            return tuple(parts)
        if isinstance(first, (str, type(None))):
            return list(values)
        tensors = [_tensor(value) for value in values]
        for one, other in pairwise(tensors):
            if (one.dim(), one.dtype) != (other.dim(), other.dtype):
                shapes = f"{tuple(one.shape)} of {one.dtype} and {tuple(other.shape)} of {other.dtype}"
                raise ValueError(f"the {where} is {shapes} in two samples: only lengths of axes may differ")
        return join(tensors)

    def _told(self, tensors: list[Tensor]) -> Any:
        joined = padded([prepared_ids(tensor) for tensor in tensors], self._value)
        if joined.dim() == 1 or not (self._lengths or self._mask):
            return joined
        lengths = torch.tensor([len(tensor) for tensor in tensors])
        mask = torch.arange(joined.shape[1]) < lengths[:, None]
        return (joined, *([lengths] if self._lengths else []), *([mask] if self._mask else []))

    def _padded_target(self, tensors: list[Tensor]) -> Tensor:
        return padded([prepared_targets(tensor) for tensor in tensors], self._target_value)


def padded(tensors: Sequence[Tensor], value: float) -> Tensor:
    """Return (samples, ...) of tensors of as many axes, as long along each axis as the longest."""
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(list(tensors))
    longest = [max(lengths) for lengths in zip(*(tensor.shape for tensor in tensors))]
    joined = torch.full((len(tensors), *longest), value, dtype=tensors[0].dtype)
    for place, tensor in zip(joined, tensors):
        place[tuple(slice(length) for length in tensor.shape)] = tensor
    return joined


def built_in_collates() -> dict[str, type[Pad]]:
    """Return the built-in ways to make a batch, by name."""
    return {"pad": Pad}


def collate_of(named: Named) -> Collate:
    """Return what makes the batches of a data section.

    Raises:
        ReferenceProblem: the name leads nowhere.
    """
    found: Any = built_in_collates().get(named.name) or resolve(named.name)
    return found(**named.arguments) if inspect.isclass(found) or named.arguments else found  # type: ignore[no-any-return]


def _is_row(value: Any) -> bool:
    """A list of numbers; an empty one is taken for one, too."""
    return isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict of {sorted(map(str, value))}"
    if isinstance(value, (tuple, list)) and not _is_row(value):
        return f"{len(value)} values"
    if value is None or isinstance(value, str):
        return "nothing" if value is None else "text"
    return "numbers"


def _kind_unlike(values: Sequence[Any]) -> str:
    return next(_kind(value) for value in values if _kind(value) != _kind(values[0]))


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)  # as default_collate makes it
    return torch.as_tensor(value)
