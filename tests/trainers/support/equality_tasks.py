"""What the tests of equality train: one small task for each kind of network, and one for each option of a step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer, lr_scheduler

from tests.trainers.support.equality_data import (
    SAMPLES,
    Augmented,
    Columns,
    images,
    pixel_values,
    ratings,
    scenes,
    sentences,
    texts,
)
from tests.trainers.support.equality_models import (
    Detector,
    GRULanguageModel,
    NeuMF,
    TransformersModel,
    Wavering,
    detection_loss,
)
from trainers import BatchPlan
from trainers.task.batch_plan import BatchChange, BatchSchedule
from trainers.zoo import CNN, MLP, VGG, DenseNet, ResNet, ShuffleNetV2

BATCH = 4
SEED = 23

RULES: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda weights: SGD(weights, 0.05, momentum=0.9, weight_decay=1e-4),
    "nesterov": lambda weights: SGD(weights, 0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda weights: Adam(weights, 1e-3, weight_decay=1e-2),
    "amsgrad": lambda weights: Adam(weights, 1e-3, amsgrad=True),
    "adamw": lambda weights: AdamW(weights, 1e-3, weight_decay=0.05),
}
SCHEDULES: dict[str, Callable[[Optimizer], lr_scheduler.LRScheduler]] = {
    "steps": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 5], 0.5),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 12),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=40),
    "warm-up": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.ExponentialLR(optimizer, 0.9)],
        [3],
    ),
}


def cross_entropy(model: nn.Module, batch: tuple[Any, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def of_each_token(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), label_smoothing=0.1)


def binary(model: nn.Module, batch: tuple[Any, Tensor]) -> Tensor:
    return functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1].float())


def clip_by_hand(model: nn.Module) -> None:
    """What a script may do between backward and update: clip the last layer alone, then freeze a bias."""
    parameters = list(model.parameters())
    nn.utils.clip_grad_norm_(parameters[-2:], 0.1)
    parameters[1].grad = None


class MomentumEncoder(nn.Module):
    """A network, and a copy of it that follows slowly and gets no gradient, as in MoCo and BYOL."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.slow = cnn(), cnn()
        self.slow.load_state_dict(self.online.state_dict())
        self.slow.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        return self.online(images) + 0.1 * self.slow(images)


class Counting(nn.Module):
    """A network whose modules count, each in its own way, and whose output depends on all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.calls, self.bright, self.warm, self.share = cnn(), 0, 0, False, 1.0

    def forward(self, images: Tensor) -> Tensor:
        scale = self.share if self.warm else 0.5
        self.warm, self.calls = True, self.calls + 1
        self.bright += int(images.mean() > images.median())
        inner: Any = self.net
        inner.seen = getattr(inner, "seen", 0) + self.bright
        return self.net(images) * (scale + 0.1 * (self.calls % 3) + 0.01 * (inner.seen % 7))


FORWARDS = 0


class CountingElsewhere(nn.Module):
    """A network that counts in an attribute of its class, and in a global of this module."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.net = cnn()

    def forward(self, images: Tensor) -> Tensor:
        global FORWARDS
        CountingElsewhere.calls += 1
        FORWARDS += int(images.mean() > images.median())
        return self.net(images) * (1 + 0.1 * (CountingElsewhere.calls % 3) + 0.01 * (FORWARDS % 7))


NOISE = np.random.default_rng(5)


class Drawing(nn.Module):
    """A network that draws from generators of its own, of its class and of this module."""

    shared = random.Random(3)

    def __init__(self) -> None:
        super().__init__()
        self.net, self.mask, self.scale = cnn(), torch.Generator().manual_seed(4), np.random.RandomState(2)

    def forward(self, images: Tensor) -> Tensor:
        kept = images * (torch.rand(images.shape, generator=self.mask) > 0.1)
        return self.net(
            kept * float(1 + 0.1 * self.scale.rand()) + 0.1 * float(NOISE.normal()) + Drawing.shared.random()
        )


def anneal(model: nn.Module) -> None:
    model.share = 0.9 * float(model.share)  # type: ignore[arg-type,assignment]


@torch.no_grad()
def follow(model: nn.Module) -> None:
    """The copy moves a tenth of the way to the network."""
    for slow, online in zip(model.slow.parameters(), model.online.parameters()):  # type: ignore[operator,union-attr]
        slow.mul_(0.9).add_(online, alpha=0.1)


@dataclass(frozen=True)
class Batches:
    """Batches that change.

    sizes: epoch -> samples of one worker in a step from then on, and in how many parts.
    factor: by what the learning rate is multiplied when a batch is so many times as large as the task's own.
    """

    sizes: Mapping[int, tuple[int, int]]
    rule: str
    factor: Callable[[float], float]
    warm_up: float = 0.0


@dataclass(frozen=True)
class EqualityTask:
    """A task; what is None in it is left out, as a user would leave it out."""

    name: str
    network: Callable[[], nn.Module]
    samples: Callable[[], Columns]
    criterion: Callable[..., Tensor] = cross_entropy
    rule: str = "sgd"
    schedule: str | None = None
    accumulate: int | None = None
    autocast: str | None = None
    clip_norm: float | None = None
    clip_value: float | None = None
    compile: bool = False
    between: Callable[[nn.Module], None] | None = None
    after: Callable[[nn.Module], None] | None = None
    needs: str | None = None
    batch_size: int = BATCH
    seed: int = field(default=SEED)
    order_seed: int = field(default=SEED)
    batches: Batches | None = None

    @property
    def batch_schedule(self) -> BatchSchedule | None:
        if self.batches is None:
            return None
        changes = tuple(BatchChange(epoch, *size) for epoch, size in self.batches.sizes.items())
        return BatchSchedule(self.batch_size, self.batches.rule, self.batches.warm_up, len(self.samples()), changes)

    def model(self) -> nn.Module:
        return self.network()

    def optimizer(self, model: nn.Module) -> Optimizer:
        return RULES[self.rule](model.parameters())

    def scheduler(self, optimizer: Optimizer) -> lr_scheduler.LRScheduler | None:
        return SCHEDULES[self.schedule](optimizer) if self.schedule else None

    def dataset(self, train: bool) -> Columns | None:
        return self.samples() if train else None

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return self.criterion(model, batch)

    def before_step(self, model: nn.Module) -> None:
        if self.between is not None:
            self.between(model)

    def after_step(self, model: nn.Module) -> None:
        if self.after is not None:
            self.after(model)

    def fresh(self) -> EqualityTask:
        """The task as it is before it trains."""
        return self


@dataclass(frozen=True)
class Remembering(EqualityTask):
    """Keeps an average of its weights, the last norms and a count, and is drawn to the average in every step."""

    memory: dict[str, Any] = field(default_factory=dict)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss = super().loss(model, batch)
        for weight, average in zip(model.parameters(), self.memory.get("average", [])):
            loss = loss + 0.001 * self.memory["steps"] * (weight - average).square().sum()
        return loss

    @torch.no_grad()
    def after_step(self, model: nn.Module) -> None:
        weights = list(model.parameters())
        average = self.memory.setdefault("average", [weight.detach().clone() for weight in weights])
        for mean, weight in zip(average, weights):
            mean.mul_(0.8).add_(weight, alpha=0.2)
        self.memory["steps"] = self.memory.get("steps", 0) + 1
        self.memory["norms"] = {"last": [*self.memory.get("norms", {}).get("last", []), float(average[0].norm())][-3:]}

    def state(self) -> dict[str, Any]:
        return self.memory

    def load_state(self, state: dict[str, Any]) -> None:
        self.memory.clear()
        self.memory.update(state)

    def fresh(self) -> EqualityTask:
        return replace(self, memory={})


@dataclass(frozen=True)
class CountingTask(EqualityTask):
    """Counts in its own loss, as a warm-up does, and in no method that fleet asks for state."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        object.__setattr__(self, "steps", getattr(self, "steps", 0) + 1)
        return super().loss(model, batch) * min(1.0, 0.05 * self.steps)  # type: ignore[attr-defined]

    def fresh(self) -> EqualityTask:
        global FORWARDS
        CountingElsewhere.calls = FORWARDS = 0
        return replace(self)


@dataclass(frozen=True)
class MixingTask(EqualityTask):
    """Mixes samples by what it draws from a generator of its own."""

    mixer: np.random.Generator = field(default_factory=lambda: np.random.Generator(np.random.MT19937(1)))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        share = float(self.mixer.beta(0.5, 0.5))
        outputs = model(share * batch[0] + (1 - share) * batch[0].flip(0))
        mixed = functional.cross_entropy(outputs, batch[1].flip(0))
        return share * functional.cross_entropy(outputs, batch[1]) + (1 - share) * mixed

    def fresh(self) -> EqualityTask:
        Drawing.shared.seed(3)
        NOISE.bit_generator.state = np.random.default_rng(5).bit_generator.state
        return replace(self, mixer=np.random.Generator(np.random.MT19937(1)))


def mlp() -> nn.Module:
    return MLP(256, (800, 100), 10, dropout=0.2)  # 1.1 MiB, so that the rebuilt buckets are two


def small() -> nn.Module:
    return MLP(256, (16,), 10, dropout=0.2)


def cnn() -> nn.Module:
    return CNN(3, (8, 16), 10, dropout=0.3)


def _bert(kind: str, **more: Any) -> Callable[[], nn.Module]:
    sizes = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 48, "max_position_embeddings": 16}
    return lambda: TransformersModel(kind, **{**sizes, **more})


def _swin() -> nn.Module:
    sizes = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 2]}
    return TransformersModel("SwinForImageClassification", **sizes, window_size=4, num_labels=10, drop_path_rate=0.2)


MODELS = [
    EqualityTask("mlp", mlp, lambda: images("mlp", channels=1)),
    EqualityTask("cnn", cnn, lambda: images("cnn", kind=Augmented), rule="nesterov", schedule="steps"),
    EqualityTask("resnet", lambda: ResNet((1, 1, 1), width=8), lambda: images("resnet"), schedule="cosine"),
    EqualityTask(
        "densenet", lambda: DenseNet((2, 2), growth=6, dropout=0.2), lambda: images("densenet"), rule="nesterov"
    ),
    EqualityTask(
        "vgg",
        lambda: VGG((1, 1, 2), (8, 16, 32), (400, 400), image=16, batch_norm=True),
        lambda: images("vgg"),
        schedule="warm-up",
    ),
    EqualityTask(
        "shufflenet",
        lambda: ShuffleNetV2((2, 2), (16, 32), initial=8, last=48),
        lambda: images("shufflenet"),
        rule="adam",
    ),
    EqualityTask("detector", Detector, lambda: scenes("detector"), detection_loss, rule="adamw"),
    EqualityTask("neumf", NeuMF, lambda: ratings("neumf"), binary, rule="adam"),
    EqualityTask("gru", GRULanguageModel, lambda: texts("gru"), of_each_token, rule="amsgrad"),
    EqualityTask(
        "bert",
        _bert("BertForSequenceClassification"),
        lambda: sentences("bert"),
        rule="adamw",
        schedule="one cycle",
        needs="transformers",
    ),
    EqualityTask(
        "electra",
        _bert("ElectraForPreTraining", embedding_size=16),
        lambda: sentences("electra", each_token=True),
        binary,
        rule="adamw",
        clip_norm=1.0,
        needs="transformers",
    ),
    EqualityTask("swin", _swin, lambda: pixel_values("swin", 32), rule="adamw", needs="transformers"),
]


def _option(name: str, network: Callable[[], nn.Module] = cnn, **options: Any) -> EqualityTask:
    made = (lambda: images(name, channels=1)) if network is mlp else (lambda: images(name))
    return EqualityTask(name, network, options.pop("samples", made), **options)


OPTIONS = [
    *(_option(f"rule {rule}", rule=rule) for rule in RULES),
    *(_option(f"schedule {schedule}", schedule=schedule) for schedule in SCHEDULES),
    _option("clip norm", clip_norm=0.5),
    _option("clip norm of two buckets", mlp, clip_norm=0.1, rule="adamw"),
    _option("clip value", clip_value=0.01),
    _option("before step", between=clip_by_hand),
    _option("momentum encoder", MomentumEncoder, after=follow, rule="adam"),
    _option("attributes", Counting, after=anneal),
    CountingTask("counters", CountingElsewhere, lambda: images("counters")),
    MixingTask("own generators", Drawing, lambda: images("own generators")),
    _option("seeds apart", Counting, order_seed=SEED + 9),
    Remembering("own state", mlp, lambda: images("own state", channels=1), rule="adam"),
    _option("accumulate 2", accumulate=2),
    _option("accumulate 3", accumulate=3, batch_size=6, rule="adam"),
    _option("accumulate two buckets", mlp, accumulate=2),
    _option("accumulate singly", mlp, accumulate=4, clip_norm=1.0),
    _option("accumulate detections", Detector, samples=lambda: scenes("parts"), criterion=detection_loss, accumulate=2),
    _option("batches larger", mlp, batches=Batches({1: (8, 1)}, "linear", float), schedule="one cycle"),
    _option("batches in parts", batches=Batches({0: (3, 1), 1: (9, 2)}, "square_root", math.sqrt), rule="adam"),
    _option("batches warmed up", batches=Batches({1: (12, 1)}, "linear", float, 1.5), schedule="steps"),
    _option("compiled", compile=True),
    _option("compiled small", small, samples=lambda: images("small", channels=1), compile=True),
    _option("compiled in parts", mlp, compile=True, accumulate=2, rule="adam"),
    _option("bfloat16", autocast="bfloat16"),
    _option("bfloat16 of two buckets", mlp, autocast="bfloat16", rule="adamw"),
    _option(
        "everything",
        autocast="bfloat16",
        accumulate=2,
        clip_norm=0.7,
        rule="adamw",
        schedule="cosine",
        samples=lambda: images("everything", kind=Augmented),
    ),
]
UNEVEN = [
    _option("three samples", mlp, samples=lambda: images("three samples", channels=1, count=3), rule="adam"),
    _option("one sample left over", mlp, samples=lambda: images("left over", channels=1, count=33), accumulate=3),
    *(
        _option(f"a layer {use}", partial(Wavering, use), samples=lambda: images("wavering", channels=1), rule="adam")
        for use in ("frozen", "never", "by some")
    ),
]
TASKS = {task.name: task for task in (*MODELS, *OPTIONS, *UNEVEN)}


def steps_of(task: str, virtual_workers: int) -> int:
    """Return one step more than two epochs."""
    return sum(steps_of_epochs(task, virtual_workers, 2)) + 1


def steps_of_epochs(task: str, virtual_workers: int, epochs: int) -> list[int]:
    """Return the steps of the first epochs, each."""
    batches = TASKS[task].batch_schedule
    sizes = [TASKS[task].batch_size if batches is None else batches.at(epoch).size for epoch in range(epochs)]
    return [BatchPlan(SAMPLES, virtual_workers, size).steps_per_epoch for size in sizes]
