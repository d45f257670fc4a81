"""Random generators that a network's code keeps for itself; their states are texts, as each virtual worker has one."""

from __future__ import annotations

import json
import random
from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import torch

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
