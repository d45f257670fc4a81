"""A trained network as a program of torch.export: it runs without the code that built it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from fleet.models.errors import HarvestError
from fleet.models.export import written


def write_program(path: Path, model: nn.Module, example: Tensor, what: str) -> None:
    """Trace a model on a batch and write the program to `path`; it takes batches of any number of samples.

    Args:
        example: inputs as the model takes them, normalised already; two samples or more.
        what: whose model it is, for messages.

    Raises:
        HarvestError: torch.export cannot trace it, or the program's outputs are others; the text says which.
    """
    samples = torch.export.Dim("samples")
    try:
        with torch.no_grad():
            program = torch.export.export(model, (example,), dynamic_shapes=({0: samples},))
            same = _same(model(example), program.module()(example))
    except Exception as error:  # tracing runs the user's code, which may raise anything
        why = str(error).strip().splitlines()
        text = f"{what}: torch.export cannot trace the network: {type(error).__name__}: {why[0] if why else ''}"
        raise HarvestError(f"{text}; export its weights, to a file that ends in .safetensors") from error
    if not same:
        raise HarvestError(f"{what}: the program of torch.export gives other outputs; export its weights instead")
    with written(path) as file:
        torch.export.save(program, file)


def _same(own: object, other: object) -> bool:
    return isinstance(own, Tensor) and isinstance(other, Tensor) and torch.equal(own, other)
