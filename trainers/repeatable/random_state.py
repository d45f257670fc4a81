"""The state of every random number generator that a training script may draw from, as one value.

EasyScale, SC'23, 3.3 names them: Python, NumPy, torch on the CPU and torch on the device.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.repeatable import numpy_words

_LARGEST_SEED = 2**32 - 1
"""NumPy's global generator takes no larger one."""


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch (every device). ValueError unless 0 <= seed <= 2**32 - 1."""
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"seed {seed} is out of range: NumPy takes 0 to {_LARGEST_SEED}; choose a seed in that range")
    random.seed(seed)
    np.random.seed(seed)
    if torch.accelerator.current_accelerator() is None:  # the other way notes the caller's stack for each kind of them
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let somebody's code draw as a script does after `torch.manual_seed(seed)`; then put the CPU's generators back."""
    before = RandomState.now(torch.device("cpu"))
    seed_everything(seed)
    try:
        yield
    finally:
        before.set(torch.device("cpu"))


@dataclass(frozen=True)
class RandomState:
    """A snapshot of the generators' states.

    torch_cpu: uint8 tensor. torch_device: uint8 tensor, None where the device is the CPU. numpy: (uint32 keys,
    position, has_gauss, cached_gaussian) of the Mersenne twister. python: what `random.getstate` gives.
    words: numpy's keys and position (`trainers.repeatable.numpy_words`) where they are known to be all of its state.
    """

    torch_cpu: Tensor
    torch_device: Tensor | None
    numpy: tuple[np.ndarray, int, int, float]
    python: tuple[int, tuple[int, ...], float | None]
    words: bytes | None = field(default=None, repr=False)

    @classmethod
    def now(cls, device: torch.device) -> RandomState:
        """Take the states as they stand."""
        _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
        numpy = (np.asarray(keys), int(position), int(has_gauss), float(cached))
        return cls._now(device, numpy, None if has_gauss else numpy_words.words())

    def after(self, device: torch.device) -> RandomState:
        """Take the states as they stand after draws that began with this one; NumPy's is read if it was drawn from."""
        drawn = self.words is None or self.words != numpy_words.words()
        return self.now(device) if drawn else self._now(device, self.numpy, self.words)

    @classmethod
    def _now(cls, device: torch.device, numpy: tuple[np.ndarray, int, int, float], words: bytes | None) -> RandomState:
        on_device = None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
        return cls(torch.get_rng_state(), on_device, numpy, random.getstate(), words)

    def set(self, device: torch.device) -> None:
        """Put the generators into these states."""
        torch.set_rng_state(self.torch_cpu)
        if self.torch_device is not None and device.type != "cpu":
            torch.get_device_module(device).set_rng_state(self.torch_device, device)
        if self.words is None or not numpy_words.put(self.words):
            np.random.set_state(("MT19937", *self.numpy))
        random.setstate(self.python)

    def as_tree(self) -> dict[str, Any]:
        """Return nested dicts of arrays and plain values for a checkpoint."""
        version, words, gauss_next = self.python
        return {
            "torch_cpu": self.torch_cpu,
            "torch_device": self.torch_device,
            "numpy": self.numpy,
            "python": (version, np.array(words, dtype=np.uint32), gauss_next),
        }

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> RandomState:
        """Return the state that `as_tree` described. ValueError, TypeError or RuntimeError if it is none."""
        version, words, gauss_next = tree["python"]
        state = cls(
            tree["torch_cpu"], tree["torch_device"], tree["numpy"], (version, tuple(words.tolist()), gauss_next)
        )
        torch.Generator().set_state(state.torch_cpu)
        np.random.RandomState(0).set_state(("MT19937", *state.numpy))
        random.Random(0).setstate(state.python)
        return state
