"""What networks say of the same samples, each of which is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from fleet.models.errors import ModelsError
from fleet.models.export import written
from fleet.models.load import Ensemble, gives_classes
from fleet.spec import Job
from fleet.spec.inputs import prepared_targets
from trainers.state.state_file import RecordingFile, hdf5_in

BATCH = 64
"""Samples that the networks get at once: always as many, since sums of floats are rounded by the shape of a batch."""
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Predictions:
    """Class probabilities of several networks.

    Attributes:
        names: the networks' names.
        probabilities: (networks, answers, classes) float32. A sample has one answer, or one for each of its places.
        targets: (answers,) int64; -1 where nobody knows them.
        samples: how many.
    """

    names: tuple[str, ...]
    probabilities: Tensor
    targets: Tensor
    samples: int

    @property
    def labelled(self) -> bool:
        """Whether all targets are known."""
        return bool((self.targets >= 0).all())

    def of_samples(self, samples: Tensor) -> Predictions:
        """Only these samples, (any,) int64."""
        each = len(self.targets) // self.samples
        rows = (samples[:, None] * each + torch.arange(each)).flatten()
        return Predictions(self.names, self.probabilities[:, rows], self.targets[rows], len(samples))

    def of_members(self, members: Sequence[int]) -> Predictions:
        """Only these networks."""
        names = tuple(self.names[each] for each in members)
        return Predictions(names, self.probabilities[list(members)], self.targets, self.samples)

    def write(self, path: Path, more: Mapping[str, Tensor], samples: Sequence[str] = ()) -> None:
        """Write an HDF5 file: `names` of the networks, their answers as `members`, and `targets` if they are known.

        Args:
            more: further arrays by name.
            samples: what the samples are called, for an array of this name; empty: nobody knows.

        Raises:
            ModelsError: it cannot be written.
        """
        arrays = {**more, "members": self.probabilities, **({"targets": self.targets} if self.labelled else {})}
        words = {"names": self.names, **({"samples": samples} if samples else {})}
        with written(path) as file, hdf5_in(RecordingFile(file.fileno(), "r+", closefd=False), "w") as hdf5:
            for name, texts in words.items():
                hdf5.create_dataset(name, data=np.array(texts, object), dtype=h5py.string_dtype())
            for name, tensor in arrays.items():
                hdf5.create_dataset(name, data=tensor.numpy())


def check_classes(jobs: Iterable[Job]) -> None:
    """Raise ModelsError unless all jobs' networks give class probabilities, as far as their losses tell."""
    others = [job for job in jobs if not gives_classes(job)]
    if others:
        named = ", ".join(f"{job.name} ({job.loss.name})" for job in others if job.loss)
        raise ModelsError(f"the outputs of {named} are no class probabilities, by their loss; name other --members")


def predict(
    ensemble: Ensemble,
    batches: Iterable[tuple[Tensor, Tensor | None]],
    device: str | torch.device = "cpu",
    each: Callable[[], object] = lambda: None,
) -> Predictions:
    """Give each batch of (inputs, targets), or None for unknown targets, to all networks.

    Args:
        each: is called before each network's answer to a batch; what it raises passes.

    Raises:
        ModelsError: there is no sample; a network cannot take them, or its outputs are no class probabilities.
    """
    return joined_answers(predict_batch(ensemble, *batch, device, each) for batch in batches)


@torch.no_grad()
def predict_batch(
    ensemble: Ensemble,
    inputs: Tensor,
    targets: Tensor | None,
    device: str | torch.device = "cpu",
    each: Callable[[], object] = lambda: None,
) -> Predictions:
    """Give one batch to all networks; see `predict`. Without targets, nobody knows them."""
    classes = None if targets is None else _classes(targets)
    moved, found = inputs.to(device), []
    for index, name in enumerate(ensemble.names):
        each()
        found.append(_answers(ensemble, index, moved, classes, f"job {name}"))
    if len({own.shape for own in found}) > 1:
        told = ", ".join(f"{name} {own.shape[1]}" for name, own in zip(ensemble.names, found))
        raise ModelsError(f"the networks know different numbers of classes: {told}; name --members that agree")
    known = torch.full((len(found[0]),), -1) if classes is None else classes.flatten()
    return Predictions(ensemble.names, torch.stack(found), known, len(inputs))


def joined_answers(parts: Iterable[Predictions]) -> Predictions:
    """The answers of the same networks to one batch after the other. ModelsError if there is none."""
    found = list(parts)
    if not found:
        raise ModelsError("there are no held-out samples to predict; give the data set some, or choose another --data")
    probabilities = torch.cat([part.probabilities for part in found], dim=1)
    targets = torch.cat([part.targets for part in found])
    return Predictions(found[0].names, probabilities, targets, sum(part.samples for part in found))


def _classes(targets: Tensor) -> Tensor:
    classes = prepared_targets(targets)
    if classes.is_floating_point() or classes.is_complex():
        kind = str(classes.dtype).removeprefix("torch.")
        raise ModelsError(f"targets are {kind}, and classes are whole numbers; choose --data with classes")
    return classes.long()


def _answers(ensemble: Ensemble, index: int, inputs: Tensor, targets: Tensor | None, what: str) -> Tensor:
    """One network's probabilities, (answers, classes) float32, on the CPU."""
    try:
        given = ensemble.member(index, inputs)
    except Exception as error:  # the user's code may raise anything
        why = (str(error).strip().splitlines() or [""])[0]
        text = f"{what} does not take samples of shape {tuple(inputs.shape[1:])}: {type(error).__name__}: {why}"
        raise ModelsError(f"{text}; choose --data or --members that fit") from error
    wanted = None if targets is None else tuple(targets.shape)
    if (
        not isinstance(given, Tensor)
        or given.dim() < 2
        or (len(given), *given.shape[2:]) != (wanted or (len(inputs), *given.shape[2:]))
    ):
        shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        of = f"targets {wanted}" if wanted else f"{len(inputs)} samples"
        raise ModelsError(f"{what} gives {shape} for {of}, and classes lie along axis 1; name other --members")
    rows = given.cpu().movedim(1, -1).flatten(0, -2)
    if not bool(((rows.sum(dim=1) - 1).abs() < _ROUNDING).all()):
        text = f"{what}: its outputs are no probabilities, or not finite"
        raise ModelsError(f"{text}; name other --members, or an earlier checkpoint with --checkpoint")
    if targets is None:
        return rows
    most = int(targets.max())
    if int(targets.min()) < 0 or most >= rows.shape[1]:
        raise ModelsError(f"{what} knows {rows.shape[1]} classes, and a target is {most}; choose --data that fits")
    return rows
