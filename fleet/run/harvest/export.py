"""A trained network's weights in a file that plain torch reads."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fleet
from fleet.run.harvest.errors import HarvestError
from fleet.run.harvest.members import Member
from fleet.run.harvest.network import TrainedNetwork
from fleet.run.harvest.stored import content_digest
from fleet.run_directory.strict_json import strict_json
from fleet.spec import EnsembleSpec
from preprocess.files.writing import make_folder, sync_folder, write_whole


@dataclass(frozen=True)
class Weights:
    """What a network's `state_dict()` holds, each tensor with memory of its own.

    Attributes:
        tensors: by name.
        tied: name -> the name of the tensor that is the same in the network.
    """

    tensors: Mapping[str, Tensor]
    tied: Mapping[str, str]

    @classmethod
    def of(cls, model: nn.Module) -> Weights:
        """Take a model's weights. HarvestError if its state is more than tensors."""
        tensors: dict[str, Tensor] = {}
        first: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
        tied: dict[str, str] = {}
        for name, value in model.state_dict().items():
            if not isinstance(value, Tensor):
                text = f"{name} of the network is of type {type(value).__name__}, and such a file holds tensors alone"
                raise HarvestError(f"{text}; let get_extra_state give a tensor, or keep the checkpoint itself")
            place = (value.data_ptr(), value.shape, value.stride())
            if value.numel() and place in first:
                tied[name] = first[place]
            first.setdefault(place, name)
            tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return cls(tensors, tied)


def card_of(network: TrainedNetwork, member: Member, spec: EnsembleSpec, tied: Mapping[str, str]) -> dict[str, Any]:
    """Return what a person should know of a network: where it is from, how good it was, and what its inputs are."""
    saved, job = network.checkpoint, member.job
    data = spec.data.get(job.data or "")
    history = saved.history[saved.epoch - 1] if 0 < saved.epoch <= len(saved.history) else {}
    return {
        "job": member.name,
        "run": spec.name,
        "epoch": saved.epoch,
        "step": saved.step,
        "steps": saved.steps,
        "metrics": dict(history) if saved.step == 0 else {},
        "checkpoint": str(network.path),
        "digest": content_digest(network.path),
        "tied": dict(tied),
        "normalise": None if data is None or data.normalise is None else data.normalise.model_dump(mode="json"),
        "spec": job.model_dump(mode="json"),
        "determinism": spec.determinism.model_dump(mode="json"),
        "versions": {"fleet": fleet.__version__, "torch": torch.__version__},
        "pins": dict(saved.pins),
    }


def write_weights(path: Path, weights: Weights, card: Mapping[str, Any]) -> None:
    """Write `path`, a safetensors file with the card in its metadata, and the card beside it with the ending .json.

    Raises:
        HarvestError: the library is missing, or a file cannot be written.
    """
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise HarvestError('safetensors is not installed: pip install "fleet-hpc[harvest]"') from error
    text = strict_json(card)
    metadata = {"format": "pt", "fleet": text}
    write_file(path, lambda partial: save_file(dict(weights.tensors), partial, metadata=metadata))
    write_whole(path.with_name(f"{path.name}.json"), json.dumps(json.loads(text), indent=1) + "\n")


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under a temporary name, then give it its own. HarvestError if it cannot be.

    People may read it as they may any other new file: libraries make files for their owner alone.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_folder(path.absolute().parent)
        partial.touch()
        mode = stat.S_IMODE(partial.stat().st_mode)
        write(partial)
        partial.chmod(mode)
        with open(partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(partial, path)
        sync_folder(path.absolute().parent)
    except OSError as error:
        raise HarvestError(
            f"{path} cannot be written: {error.strerror or error}; make room or choose another"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
