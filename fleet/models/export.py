"""A trained network's weights in a file that plain torch reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

import fleet
from fleet.journal.whole_files import strict_json
from fleet.models.errors import ModelsError
from fleet.models.members import Member, content_digest
from fleet.models.network import TrainedNetwork
from fleet.spec import EnsembleSpec, Job
from fleet.spec.job import data_key
from fleet.workers.agreement import BadInput
from fleet.workers.datasets import dataset_specs
from preprocess import Dataset
from preprocess.files.modules import at_home
from preprocess.files.writing import cause, make_folder, whole_file
from preprocess.samples.order import HELD_OUT, TRAIN


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
        """Take a model's weights. ModelsError if its state is more than tensors."""
        tensors: dict[str, Tensor] = {}
        first: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
        tied: dict[str, str] = {}
        for name, value in model.state_dict().items():
            if not isinstance(value, Tensor):
                text = f"{name} of the network is of type {type(value).__name__}, and such a file holds tensors alone"
                raise ModelsError(f"{text}; let get_extra_state give a tensor, or keep the checkpoint itself")
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
    return {
        "job": member.name,
        "run": spec.name,
        "epoch": saved.epoch,
        "step": saved.step,
        "steps": saved.steps,
        "metrics": dict(saved.history.at(saved.epoch)) if saved.step == 0 else {},
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
        ModelsError: the library is missing, or a file cannot be written.
    """
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise ModelsError('safetensors is not installed: pip install "fleet-hpc[harvest]"') from error
    text = strict_json(card)
    metadata = {"format": "pt", "fleet": text}
    with written(path) as file:
        file.write(save(dict(weights.tensors), metadata=metadata))
    with written(path.with_name(f"{path.name}.json")) as file:
        file.write(f"{json.dumps(json.loads(text), indent=1)}\n".encode())


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that is complete or not there, as `preprocess.files.writing.whole_file`; and the folder, if need be.

    Raises:
        ModelsError: it cannot be written.
    """
    try:
        make_folder(path.absolute().parent)
        with whole_file(path) as file:
            yield file
    except OSError as error:
        raise ModelsError(f"{path} cannot be written: {cause(error)}; make room or choose another") from error


def write_program(path: Path, model: nn.Module, example: Tensor, what: str) -> None:
    """Trace a model on a batch and write the program to `path`; it takes batches of any number of samples.

    Args:
        example: inputs as the model takes them, normalised already; two samples or more.
        what: whose model it is, for messages.

    Raises:
        ModelsError: torch.export cannot trace it, or the program's outputs are others; the text says which.
    """
    samples = torch.export.Dim("samples")
    try:
        with torch.no_grad():
            program = torch.export.export(model, (example,), dynamic_shapes=({0: samples},))
            same = _same(model(example), program.module()(example))
    except Exception as error:  # tracing runs the user's code, which may raise anything
        why = str(error).strip().splitlines()
        text = f"{what}: torch.export cannot trace the network: {type(error).__name__}: {why[0] if why else ''}"
        raise ModelsError(f"{text}; export its weights, to a file that ends in .safetensors") from error
    if not same:
        raise ModelsError(f"{what}: the program of torch.export gives other outputs; export its weights instead")
    with written(path) as file:
        torch.export.save(program, file)


def _same(own: object, other: object) -> bool:
    return isinstance(own, Tensor) and isinstance(other, Tensor) and torch.equal(own, other)


def example_inputs(spec: EnsembleSpec, job: Job, samples: int = 2) -> Tensor:
    """Return the first inputs of a job's data as a batch, from what is held out where anything is.

    Raises:
        BadInput: samples are put together by the job's own code.
        SourceError, TransformError: the data cannot be read.
    """
    key = data_key(job)
    if key in spec.data and spec.data[key].collate is not None:
        raise BadInput(
            f"the batches of job {job.name} are made by `collate`, so no example of its inputs is known here"
        )
    with at_home(spec.folder):
        data = Dataset(dataset_specs(spec.with_jobs((job,)))[key])
        kind, there = (HELD_OUT, data.held_out) if data.held_out else (TRAIN, data.length)
        inputs, targets = data.layout.empty(samples)
        for row in range(samples):
            data.make(kind, job.order_seed, 0, row % there, inputs[row], targets[row : row + 1])
    return torch.from_numpy(inputs)
