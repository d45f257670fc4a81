"""The states of random number generators: those that any training script may draw from, and a network's own.

EasyScale, SC'23, 3.3 names them: Python, NumPy, torch on the CPU and torch on the device. Each virtual worker's turn
puts its own there and takes them back, so Python's and NumPy's are copied where they lie in memory: their own functions
for it take 10 to 90 us, the copies 0.3.
"""

from __future__ import annotations

import _random
import ctypes
import json
import random
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.random import MT19937, get_bit_generator, set_bit_generator  # type: ignore[attr-defined]  # NumPy's stubs lack them
from torch import Tensor

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


@dataclass(slots=True)
class RandomState:
    """A snapshot of the generators' states.

    torch_cpu: uint8 tensor. torch_device: uint8 tensor, None where the device is the CPU.
    kept_by_numpy: the words of its Mersenne twister, while it keeps no normal number for the next draw; else what
        `numpy.random.get_state` gives beside the name.
    kept_by_python: the words of its twister and the normal number that it keeps; where the words cannot be copied, what
        `random.getstate` gives.
    """

    torch_cpu: Tensor
    torch_device: Tensor | None
    kept_by_numpy: bytes | NumpyState
    kept_by_python: tuple[bytes, float | None] | PythonState

    @classmethod
    def now(cls, device: torch.device) -> RandomState:
        """Take the states as they stand."""
        on_device = None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
        words = _WORDS_OF_PYTHON
        python = random.getstate() if words is None else (bytes(words), _PYTHON.gauss_next)
        return cls(torch.default_generator.get_state(), on_device, _numpy_now(), python)

    def renew(self, device: torch.device) -> None:
        """Take the states as they stand after draws that began with this one; what nobody drew from stays."""
        self.torch_cpu = torch.default_generator.get_state()
        if device.type != "cpu":
            self.torch_device = torch.get_device_module(device).get_rng_state(device)
        numpy = self.kept_by_numpy
        if not isinstance(numpy, bytes) or (words := _words_of(get_bit_generator())) is None or bytes(words) != numpy:
            self.kept_by_numpy = _numpy_now()
        if _WORDS_OF_PYTHON is None:
            self.kept_by_python = random.getstate()
        elif bytes(_WORDS_OF_PYTHON) != self.kept_by_python[0] or _PYTHON.gauss_next != self.kept_by_python[1]:
            self.kept_by_python = bytes(_WORDS_OF_PYTHON), _PYTHON.gauss_next

    def set(self, device: torch.device) -> None:
        """Put the generators into these states."""
        torch.default_generator.set_state(self.torch_cpu)
        if self.torch_device is not None and device.type != "cpu":
            torch.get_device_module(device).set_rng_state(self.torch_device, device)
        generator = get_bit_generator()
        if isinstance(self.kept_by_numpy, bytes) and (words := _words_of(generator)) is not None:
            words[:] = self.kept_by_numpy
            set_bit_generator(generator)  # who sets one has no normal number kept
        else:
            np.random.set_state(("MT19937", *self.numpy))
        if _WORDS_OF_PYTHON is not None and len(self.kept_by_python) == 2:
            _WORDS_OF_PYTHON[:], _PYTHON.gauss_next = self.kept_by_python
        else:
            random.setstate(self.python)

    @property
    def numpy(self) -> NumpyState:
        """NumPy's state: (uint32 keys, position, has_gauss, cached_gaussian)."""
        if not isinstance(self.kept_by_numpy, bytes):
            return self.kept_by_numpy
        words = np.frombuffer(self.kept_by_numpy, dtype=np.uint32)
        return words[:-1].copy(), int(words[-1]), 0, 0.0

    @property
    def python(self) -> PythonState:
        """What `random.getstate` gives."""
        if len(self.kept_by_python) == 3:
            return self.kept_by_python
        words, gauss_next = self.kept_by_python
        position, *keys = np.frombuffer(words, dtype=np.uint32).tolist()
        return _PYTHON.VERSION, (*keys, position), gauss_next

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


NumpyState = tuple[np.ndarray, int, int, float]
PythonState = tuple[int, tuple[int, ...], float | None]

_WORDS = 625 * 4
"""Bytes of a Mersenne twister: 624 words, and the place among them, which NumPy has last and Python first."""
_PYTHON: Any = random._inst  # type: ignore[attr-defined]  # the generator behind `random.random`


def _words_at(address: int) -> memoryview:
    return memoryview((ctypes.c_ubyte * _WORDS).from_address(address)).cast("B")


def _words_of_python() -> memoryview | None:
    """Return the words of Python's global generator, which follow its object's head; None where they do not."""
    if _random.Random.__basicsize__ < object.__basicsize__ + _WORDS:
        return None
    there = _words_at(id(_PYTHON) + object.__basicsize__)
    keys = random.getstate()[1]
    return there if bytes(there) == np.array([keys[-1], *keys[:-1]], dtype=np.uint32).tobytes() else None


_WORDS_OF_PYTHON = _words_of_python()


@lru_cache(1)  # a script may set another one
def _words_of(generator: Any) -> memoryview | None:
    """Return the words of NumPy's global generator, where NumPy says that they lie; None of another kind of it."""
    return _words_at(generator.ctypes.state_address) if isinstance(generator, MT19937) else None


def _numpy_now() -> bytes | NumpyState:
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    words = None if has_gauss else _words_of(get_bit_generator())
    return bytes(words) if words is not None else (np.asarray(keys), int(position), int(has_gauss), float(cached))


Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random


def is_generator(value: object) -> bool:
    """Whether it is a generator of torch, NumPy or Python."""
    return isinstance(value, Generator)


def state_of(generator: Generator) -> str:
    """Return the state as a text; equal states have equal texts."""
    if isinstance(generator, torch.Generator):
        return b64encode(generator.get_state().numpy().tobytes()).decode()
    if isinstance(generator, random.Random):
        return json.dumps(generator.getstate())
    if isinstance(generator, np.random.RandomState):
        return json.dumps(generator.get_state(legacy=False), default=_array)
    return json.dumps(generator.bit_generator.state, default=_array)


def set_state(generator: Generator, state: str) -> None:
    """Put a generator into a state that one of its kind had."""
    if isinstance(generator, torch.Generator):
        generator.set_state(torch.frombuffer(bytearray(b64decode(state)), dtype=torch.uint8))
    elif isinstance(generator, random.Random):
        version, words, gauss_next = json.loads(state)
        generator.setstate((version, tuple(words), gauss_next))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(json.loads(state, object_hook=_arrays))
    else:
        generator.bit_generator.state = json.loads(state, object_hook=_arrays)


def _array(value: Any) -> Any:
    return {"array": value.tolist(), "dtype": str(value.dtype)}


def _arrays(value: dict[str, Any]) -> Any:
    return np.array(value["array"], value["dtype"]) if set(value) == {"array", "dtype"} else value
