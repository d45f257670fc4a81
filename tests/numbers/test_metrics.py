"""Metrics of drawn outputs and targets, against torchmetrics on the whole set: whatever the batches are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
import torchmetrics
from torch import Tensor
from torch.nn import functional
from torchmetrics import classification, regression, text

from fleet.spec.metrics import BUILT_IN, NamedMetric, named_metric
from fleet.spec.references import ReferenceProblem
from trainers.task.metrics import Form, Misfit, as_metric, values

SAMPLES, CLASSES, LONGEST = 61, 5, 7
_CUTS = (1, 4, 17, SAMPLES)
Samples = list[tuple[Tensor, Tensor]]


def drawn(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def chosen(count: int, shape: tuple[int, ...], seed: int = 1) -> Tensor:
    return torch.randint(0, count, shape, generator=torch.Generator().manual_seed(seed))


def padded(samples: Samples) -> tuple[Tensor, Tensor]:
    """Sequences as a batch: outputs with noise, and targets that do not count, where they are no longer."""
    longest = max(len(targets) for _, targets in samples)
    outputs = drawn((len(samples), CLASSES, longest), seed=longest)
    targets = torch.full((len(samples), longest), -100)
    for row, (own, wanted) in enumerate(samples):
        outputs[row, :, : len(wanted)], targets[row, : len(wanted)] = own, wanted
    return outputs, targets


def batches(outputs: Tensor, targets: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(outputs.split(size), targets.split(size))


def measured(name: Any, cut: Iterator[tuple[Any, Any]], form: Form = Form()) -> float:  # noqa: B008
    """A metric's value, as a trainer's group works it out."""
    metric = named_metric(name, form)
    return values([{"it": metric.state(*batch)} for batch in cut], {"it": metric})["it"]


def reference(kind: Literal["binary", "multiclass"]) -> dict[str, Any]:
    """Built-in name -> the object of torchmetrics that has to agree."""
    many: dict[str, Any] = (
        {"task": kind} if kind == "binary" else {"task": kind, "num_classes": CLASSES, "average": "macro"}
    )
    few = {key: value for key, value in many.items() if key != "average"}
    return {
        "f1": torchmetrics.F1Score(**many),
        "precision": torchmetrics.Precision(**many),
        "recall": torchmetrics.Recall(**many),
        "specificity": torchmetrics.Specificity(**many),
        "auroc": torchmetrics.AUROC(**many),
        "average_precision": torchmetrics.AveragePrecision(**many),
        "cohen_kappa": torchmetrics.CohenKappa(**few),
        "matthews": torchmetrics.MatthewsCorrCoef(**few),
    }


@pytest.mark.parametrize("size", _CUTS)
def test_several_classes(size: int) -> None:
    outputs, targets = drawn((SAMPLES, CLASSES)), chosen(CLASSES, (SAMPLES,))
    own = {
        "accuracy": classification.MulticlassAccuracy(CLASSES, average="micro"),
        "top5": classification.MulticlassAccuracy(CLASSES, average="micro", top_k=5),
        "balanced_accuracy": classification.MulticlassAccuracy(CLASSES, average="macro"),
        "mean_iou": classification.MulticlassJaccardIndex(CLASSES),
    }
    for name, whole in {**reference("multiclass"), **own}.items():
        found = measured(name, batches(outputs, targets, size))
        assert found == pytest.approx(float(whole(outputs.softmax(1), targets)), rel=1e-6), name
    surprise = functional.cross_entropy(outputs, targets).item()
    assert measured("perplexity", batches(outputs, targets, size)) == pytest.approx(math.exp(surprise), rel=1e-6)


@pytest.mark.parametrize("size", _CUTS)
def test_two_classes_one_logit_and_columns_are_one_problem(size: int) -> None:
    logits, targets = drawn((SAMPLES,)), chosen(2, (SAMPLES,))
    two = torch.stack([torch.zeros(SAMPLES), logits], dim=1)
    forms: dict[str, tuple[Tensor, Tensor]] = {
        "two scores": (two, targets),
        "a column of targets": (two, targets[:, None]),
        "one logit": (logits, targets.float()),
        "a column of logits": (logits[:, None], targets),
        "columns of both": (logits[:, None], targets[:, None].float()),
        "bytes": (two, targets.to(torch.uint8)),
        "truth": (logits, targets.bool()),
    }
    own = {
        "accuracy": classification.BinaryAccuracy(),
        "mean_iou": classification.MulticlassJaccardIndex(2),
        "balanced_accuracy": classification.MulticlassAccuracy(2, average="macro"),
    }
    for name, whole in {**reference("binary"), **own}.items():
        given = two.softmax(1) if "Multiclass" in type(whole).__name__ else logits.sigmoid()
        wanted = float(whole(given, targets))
        for form, (outputs, wants) in forms.items():
            found = measured(name, batches(outputs, wants, size))
            assert found == pytest.approx(wanted, rel=1e-6), (name, form)


@pytest.mark.parametrize("size", _CUTS)
def test_padding_and_batches_change_nothing(size: int) -> None:
    lengths = (1 + chosen(LONGEST, (SAMPLES,), seed=2)).tolist()
    samples = [(drawn((CLASSES, n), seed=n + i), chosen(CLASSES, (n,), seed=n + i)) for i, n in enumerate(lengths)]
    scores = torch.cat([outputs.T for outputs, _ in samples])
    targets = torch.cat([wanted for _, wanted in samples])
    for name, whole in {
        **reference("multiclass"),
        "accuracy": classification.MulticlassAccuracy(CLASSES, average="micro"),
    }.items():
        cut = (padded(samples[start : start + size]) for start in range(0, SAMPLES, size))
        assert measured(name, cut) == pytest.approx(float(whole(scores.softmax(1), targets)), rel=1e-6), name
    texts = [[" ".join(map(str, row.tolist())) for row in rows] for rows in (
        [outputs.argmax(0) for outputs, _ in samples], [wanted for _, wanted in samples]
    )]  # fmt: skip
    cut = (padded(samples[start : start + size]) for start in range(0, SAMPLES, size))
    assert measured("word_error_rate", cut) == pytest.approx(float(text.WordErrorRate()(*texts)), rel=1e-6)


@pytest.mark.parametrize("size", _CUTS)
def test_several_labels(size: int) -> None:
    outputs, targets = drawn((SAMPLES, CLASSES)), chosen(2, (SAMPLES, CLASSES)).float()
    form = Form(kind="binary")  # as a loss of logits says
    for name, whole in {
        "accuracy": classification.MultilabelAccuracy(CLASSES, average="micro"),
        "f1": classification.MultilabelF1Score(CLASSES),
        "auroc": classification.MultilabelAUROC(CLASSES),
    }.items():
        found = measured(name, batches(outputs, targets, size), form)
        assert found == pytest.approx(float(whole(outputs.sigmoid(), targets.long())), rel=1e-6), name


def test_one_hot_targets_are_classes_where_the_loss_says_so() -> None:
    outputs, targets = drawn((SAMPLES, CLASSES)), chosen(CLASSES, (SAMPLES,))
    hot = functional.one_hot(targets, CLASSES).float()
    right = float((outputs.argmax(1) == targets).double().mean())
    assert measured("accuracy", batches(outputs, hot, 4), Form("multiclass")) == pytest.approx(right, rel=1e-9)
    said = NamedMetric(name="accuracy", arguments={"task": "multiclass"})
    assert measured(said, batches(outputs, hot, 4)) == pytest.approx(right, rel=1e-9)
    with pytest.raises(Misfit, match=r"\(61, 5\) of float32 .* one class of several, or several labels.*multiclass"):
        measured("accuracy", batches(outputs, hot, SAMPLES))


@pytest.mark.parametrize("size", _CUTS)
def test_values(size: int) -> None:
    outputs, targets = drawn((SAMPLES, 1)), drawn((SAMPLES,), seed=5)
    for name, whole in {
        "mean_absolute_error": regression.MeanAbsoluteError(),
        "mean_squared_error": regression.MeanSquaredError(),
        "rmse": regression.MeanSquaredError(squared=False),
        "r2": regression.R2Score(),
        "pearson": regression.PearsonCorrCoef(),
    }.items():
        found = measured(name, batches(outputs, targets, size))
        assert found == pytest.approx(float(whole(outputs[:, 0].double(), targets.double())), rel=1e-6), name


def test_only_padding_that_data_say_is_left_out_of_values() -> None:
    outputs, targets = torch.zeros(4, 1), torch.tensor([1.0, -100.0, 3.0, float("nan")])
    real = measured("mean_absolute_error", batches(outputs[:3], targets[:3], 2))
    assert real == pytest.approx(104 / 3)
    assert measured("mean_absolute_error", batches(outputs[:3], targets[:3], 2), Form(padding=-100)) == 2.0
    assert measured("rmse", batches(outputs[2:], targets[2:], 1), Form(padding=float("nan"))) == 3.0


class Sums(torchmetrics.Metric):
    """A person's own metric, with a state of each kind that can be put together."""

    higher_is_better = False
    full_state_update = False
    total: Tensor
    most: Tensor
    seen: list[Tensor]

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = power
        self.add_state("total", torch.tensor(0.0), "sum")
        self.add_state("most", torch.tensor(-math.inf), "max")
        self.add_state("seen", [], "cat")

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.total += outputs.double().sum() ** self.power
        self.most = torch.maximum(self.most, outputs.max())
        self.seen.append(targets)

    def compute(self) -> Tensor:
        return self.total + self.most + torch.cat(self.seen).sum()


class Spread(torchmetrics.Metric):
    """Its states say nothing of how those of several become one."""

    mean: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("mean", torch.tensor(0.0))
        self.add_state("count", torch.tensor(0.0), "mean")

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.mean = (self.mean * self.count + outputs.double().sum()) / (self.count + outputs.numel())
        self.count = self.count + outputs.numel()

    def compute(self) -> Tensor:
        return self.mean


@pytest.mark.parametrize("size", _CUTS)
def test_what_has_no_way_to_be_put_together_sees_all_samples(size: int) -> None:
    outputs, targets = drawn((SAMPLES, 2)), chosen(9, (SAMPLES,))
    wanted = float(outputs.double().mean())
    assert measured(f"{__name__}:Spread", batches(outputs, targets, size)) == pytest.approx(wanted, rel=1e-6)


def test_a_persons_own_class_is_put_together_from_its_states() -> None:
    outputs, targets = drawn((SAMPLES, 2)), chosen(9, (SAMPLES,))
    wanted = float(outputs.double().sum() + outputs.max() + targets.sum())
    for size in _CUTS:
        assert measured(f"{__name__}:Sums", batches(outputs, targets, size)) == pytest.approx(wanted, rel=1e-6)
    own = as_metric(Sums())
    assert own.better == "lower"
    cut = [{"it": own.state(*batch)} for batch in batches(outputs, targets, 4)]
    assert values(cut, {"it": own})["it"] == pytest.approx(wanted, rel=1e-6)


def test_any_class_of_torchmetrics_sees_probabilities_of_the_whole_set() -> None:
    """Its own look at a batch, whether all scores are in [0, 1], would take some logits for probabilities."""
    outputs, targets = drawn((SAMPLES, CLASSES)).abs() / 4, chosen(CLASSES, (SAMPLES,))
    outputs[0] += 3
    whole = classification.MulticlassCalibrationError(CLASSES)
    wanted = float(whole(outputs.softmax(1).double(), targets))
    for of in ("torchmetrics:CalibrationError", "torchmetrics.classification:MulticlassCalibrationError"):
        for size in _CUTS:
            found = measured(NamedMetric(name="ece", of=of), batches(outputs, targets, size))
            assert found == pytest.approx(wanted, rel=1e-6), (of, size)


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("torchmetrics.text:WordErorRate", "nearest: torchmetrics.text:WordErrorRate"),
        (NamedMetric(name="f1", arguments={"avarage": "macro"}), "f1 takes no argument avarage; nearest: average"),
        (NamedMetric(name="accuracy", arguments={"average": "macro"}), "accuracy takes no argument average"),
        (NamedMetric(name="f1", arguments={"task": "multi"}), "task is 'multi'; it is one of multiclass, binary"),
        (NamedMetric(name="s", of=f"{__name__}:Sums", arguments={"powr": 2}), "making .*Sums raised TypeError"),
        (NamedMetric(name="s", of=f"{__name__}:Sums", better="higher"), "better is higher, and .*:Sums declares that"),
    ],
)
def test_what_cannot_be_measured_is_told(entry: Any, told: str) -> None:
    with pytest.raises(ReferenceProblem, match=told):
        named_metric(entry)


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "told"),
    [
        ("accuracy", drawn((4, 3)), torch.tensor([0, 1, 2, 3]), "a target is 3, and 3 classes are numbered"),
        ("accuracy", drawn((4,)), torch.tensor([0.0, 0.5, 1, 1]), "a target is 0.5, and 2 classes .* mean_abs"),
        ("accuracy", drawn((4, 3)), chosen(3, (5,)), r"\(4, 3\) of float32 and targets of shape \(5,\) of int64"),
        ("accuracy", drawn((4, 6, 3)), chosen(3, (4, 6)), "along the last axis: add arguments: {class_axis: -1}"),
        ("accuracy", chosen(3, (4, 3)), chosen(3, (4,)), "these are whole numbers; let the network give its scores"),
        ("accuracy", {"logits": drawn((4, 3))}, chosen(3, (4,)), "the outputs are of type dict"),
        ("mean_squared_error", drawn((4, 2)), drawn((4,)), "each output needs a target"),
        ("r2", drawn((4, 2)), drawn((4, 2)), "several values of a sample"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_go_together_are_told(name: str, outputs: Any, targets: Any, told: str) -> None:
    with pytest.raises(Misfit, match=told):
        named_metric(name).state(outputs, targets)


def test_classes_along_the_last_axis() -> None:
    outputs, targets = drawn((4, 6, 3)), chosen(3, (4, 6))
    said = NamedMetric(name="accuracy", arguments={"class_axis": -1})
    right = float((outputs.argmax(-1) == targets).double().mean())
    assert measured(said, batches(outputs, targets, 2)) == pytest.approx(right)


def test_what_gives_several_values_is_told() -> None:
    with pytest.raises(Misfit, match="gives a tensor of shape .* give it arguments such as average: macro"):
        said = NamedMetric(name="f1", arguments={"average": "none"})
        measured(said, batches(drawn((9, CLASSES)), chosen(CLASSES, (9,)), 3))


def test_nothing_that_counts_is_no_value() -> None:
    outputs, nobody = drawn((4, CLASSES)), torch.full((4,), -100)
    for name in ("accuracy", "top5", "perplexity", "f1", "auroc", "mean_iou"):
        assert math.isnan(measured(name, batches(outputs, nobody, 2))), name
    assert math.isnan(measured("auroc", batches(drawn((4,)), torch.ones(4), 2))), "one class alone has no order"
    assert math.isnan(values([{"own": (0.0, 0.0)}], {})["own"])


def test_directions_of_built_in_metrics_are_those_of_torchmetrics() -> None:
    for name, own in BUILT_IN.items():
        if own.of:
            module, _, made_of = own.of.partition(":")
            there = getattr(torchmetrics, module)
            declared = getattr(there, f"Binary{made_of}", getattr(there, made_of)).higher_is_better
            assert declared is None or declared == (own.better == "higher"), name
