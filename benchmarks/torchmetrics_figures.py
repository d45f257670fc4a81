"""The figures of trained networks as torchmetrics gives them, in plain loops: a network after the other."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot

import fleet
from fleet.models.members import read_members
from fleet.models.validation_data import held_out_of
from fleet.models.vote import BINS

BATCH = 64


def figures_of_loops(run: Path) -> dict[str, dict[str, float]]:
    """Network -> figure -> value; under `all together` those of the mean, with disagreement and diversity."""
    found = read_members(run)
    samples = held_out_of(found.spec, [member.job for member in found.all])
    rows, targets = {}, torch.empty(0, dtype=torch.int64)
    for member in found.all:
        network, own, wanted = fleet.load(run, [member.name]), [], []
        with torch.no_grad():
            for inputs, classes in samples.batches(BATCH):
                assert classes is not None
                own.append(network(inputs))
                wanted.append(classes)
        rows[member.name], targets = torch.cat(own), torch.cat(wanted).long()
    mean = torch.stack([each.double() for each in rows.values()]).mean(dim=0)
    together = {**figures(mean, targets), **differences(list(rows.values()), mean)}
    return {**{name: figures(each, targets) for name, each in rows.items()}, "all together": together}


def figures(probabilities: Tensor, targets: Tensor) -> dict[str, float]:
    """Accuracy, NLL, Brier score and calibration error of (samples, classes), updated batch by batch."""
    from torchmetrics import MeanSquaredError
    from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError
    from torchmetrics.text import Perplexity

    classes = probabilities.shape[1]
    accuracy = MulticlassAccuracy(classes, average="micro")
    error = MulticlassCalibrationError(classes, n_bins=BINS, norm="l1").set_dtype(torch.float64)
    perplexity, squares = Perplexity().set_dtype(torch.float64), MeanSquaredError().set_dtype(torch.float64)
    for begin in range(0, len(targets), BATCH):
        rows, wanted = probabilities[begin : begin + BATCH], targets[begin : begin + BATCH]
        accuracy.update(rows, wanted)
        error.update(rows, wanted)
        perplexity.update(rows.double().log()[None], wanted[None])
        squares.update(rows.double().flatten(), one_hot(wanted, classes).double().flatten())
    return {
        "accuracy": float(accuracy.compute()),
        "nll": float(perplexity.compute().log()),
        "brier": float(squares.compute()) * classes,
        "ece": float(error.compute()),
    }


def differences(members: list[Tensor], mean: Tensor) -> dict[str, float]:
    """Disagreement over all pairs of networks, and diversity: how far each is from their mean."""
    from torchmetrics.functional.classification import multiclass_accuracy
    from torchmetrics.functional.regression import kl_divergence

    answers, classes = [each.argmax(dim=1) for each in members], mean.shape[1]
    apart = [
        1 - float(multiclass_accuracy(one, other, classes, average="micro")) for one, other in combinations(answers, 2)
    ]
    far = [float(kl_divergence(each.double(), mean)) for each in members]
    return {"disagreement": sum(apart) / len(apart), "diversity": sum(far) / len(far)}
