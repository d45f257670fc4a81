"""States of a job as digests of its tensors, and the first of two states' tensors that differs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trainers.state.tree import flatten

State = dict[str, str]
"""Name of a tensor -> digest of its dtype, shape and bytes."""
States = dict[str, list[State]]
"""Step -> the state of each virtual rank after it."""


def digest(tensor: Tensor) -> str:
    data = tensor.detach().cpu().contiguous().view(-1)
    data = data.view(torch.uint8) if data.numel() else data
    head = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    return hashlib.blake2b(head + data.numpy().tobytes(), digest_size=12).hexdigest()


def state(
    parameters: Iterable[tuple[str, Tensor]],
    buffers: Iterable[tuple[str, Tensor]],
    optimizer: Mapping[str, Any],
    own: Any = None,
) -> State:
    """Return the digests of all that must agree on a rank; `optimizer` is a state_dict, `own` the task's own state."""
    tensors = {f"parameter {name}": value for name, value in parameters}
    tensors |= {f"buffer {name}": value for name, value in buffers}
    for index, entries in optimizer["state"].items():
        tensors |= {f"optimizer {index} {name}": value for name, value in entries.items() if value is not None}
    structure, arrays = flatten(own)
    tensors |= {f"own state {path}": torch.as_tensor(array) for path, array in arrays.items()}
    digests = {name: digest(torch.as_tensor(value)) for name, value in tensors.items()}
    rates = [float(group["lr"]).hex() for group in optimizer["param_groups"]]
    return {**digests, "learning rates": " ".join(rates), "own state": structure}


def merged(optimizers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the state_dicts of several optimizers as one; a single one as it is."""
    if len(optimizers) == 1:
        return optimizers[0]
    state = {f"{n} {index}": value for n, each in enumerate(optimizers) for index, value in each["state"].items()}
    return {"state": state, "param_groups": [group for each in optimizers for group in each["param_groups"]]}


def first_difference(got: States, wanted: States) -> str | None:
    """Return where two histories of states part, in words: step, rank and tensor; None if they agree."""
    common = sorted(got.keys() & wanted.keys(), key=int)
    if not common:
        return f"no step in common: {sorted(got)} and {sorted(wanted)}"
    for step in common:
        if len(got[step]) != len(wanted[step]):
            return f"step {step}: {len(got[step])} ranks, {len(wanted[step])} wanted"
        for rank, (one, other) in enumerate(zip(got[step], wanted[step])):
            if one.keys() != other.keys():
                return f"step {step}, rank {rank}: tensors {sorted(one.keys() ^ other.keys())} are on one side only"
            differing = [name for name in other if one[name] != other[name]]
            if differing:
                return f"step {step}, rank {rank}: {differing[0]} and {len(differing) - 1} more of {len(other)} differ"
    return None
