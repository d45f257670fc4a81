# ruff: noqa: E501  (tables of cases, one a line)
"""A job of the spec as the task that a trainer trains."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn import functional

from fleet.spec import Data, InputPreparation, Job, Normalise, ReferenceProblem, SpecTask, importable
from trainers.task.task_options import StepOptions

SOURCE = """
    import torch
    from torch import nn
    from torch.nn import functional

    class Net(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layer = nn.Linear(4, width)
            self.calls = 0
        def forward(self, x):
            self.calls += 1
            return self.layer(x.flatten(1))

    class Scaled:
        def __init__(self, by): self.by = by
        def __call__(self, outputs, targets): return functional.cross_entropy(outputs, targets) * self.by

    def plain(outputs, targets, by=1.0): return functional.cross_entropy(outputs, targets) * by
    def mine(outputs, targets): return float(targets.sum()), float(len(targets))
    class Counted:
        def __call__(self, outputs, targets): return 1.0, float(len(targets))

    class Task:
        batch_size = 99
        def __init__(self, width=3): self.width = width
        def model(self): return Net(self.width)
        def optimizer(self, model): return torch.optim.Adam(model.parameters())
        def dataset(self, train): return "train" if train else None

    class FullTask(Task):
        def loss(self, model, batch): return model(batch[0]).mean()
        def metrics(self, model, batch): return {"seen": (float(batch[0].dtype == torch.float32), 1.0)}
        def scheduler(self, optimizer): return torch.optim.lr_scheduler.StepLR(optimizer, 1)

    class Careful(Task):
        accumulate, autocast, clip_value = 2, "bfloat16", 0.5
        def before_step(self, model): model.calls = 100

    class Careless(Task):
        clip_norm = -1
"""


@pytest.fixture(autouse=True)
def nets(module: Callable[[str, str], pathlib.Path], tmp_path: pathlib.Path) -> Any:
    module("nets", SOURCE)
    with importable([tmp_path]):
        yield


def job(**keys: Any) -> Job:
    values: dict[str, Any] = {
        "name": "one",
        "model": {"name": "nets:Net", "arguments": {"width": 3}},
        "data": "d",
        "optimizer": {"name": "SGD", "arguments": {"lr": 0.1, "momentum": 0.5}},
        "stop": {"epochs": 1},
    }
    return Job.model_validate({**values, **keys})


def data(**keys: Any) -> Data:
    return Data.model_validate({"train": "m:D", **keys})


BATCH = (torch.arange(24).reshape(6, 4).float() / 10, torch.tensor([0, 1, 2, 0, 1, 2]))


def test_what_a_job_builds() -> None:
    schedule = {"name": "StepLR", "arguments": {"step_size": 1, "gamma": 0.5}}
    task = SpecTask(job(seed=7, batch_size=16, schedule=schedule), data())
    assert (task.name, task.seed, task.batch_size) == ("one", 7, 16)
    model = task.model()
    optimizer = task.optimizer(model)
    assert isinstance(optimizer, torch.optim.SGD) and optimizer.param_groups[0]["momentum"] == 0.5
    assert optimizer.param_groups[0]["params"] == list(model.parameters())
    scheduler = task.scheduler(optimizer)
    assert isinstance(scheduler, torch.optim.lr_scheduler.StepLR)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert SpecTask(job(), data()).scheduler(optimizer) is None


def test_what_a_job_asks_of_a_step() -> None:
    assert StepOptions.of(SpecTask(job(), data())) == StepOptions()
    asked = {"accumulate": 4, "autocast": "bfloat16", "clip_norm": 1.0}
    assert StepOptions.of(SpecTask(job(**asked), data())) == StepOptions(4, "bfloat16", 1.0)
    for said, meant in ((True, "kernels"), (False, False), ("graphs", "graphs")):
        assert StepOptions.of(SpecTask(job(compile=said), data())).compile == meant
    careful = SpecTask(Job.model_validate({"name": "one", "task": "nets:Careful", "stop": {"epochs": 1}}))
    assert StepOptions.of(careful) == StepOptions(2, "bfloat16", None, 0.5)
    model = careful.model()
    careful.before_step(model)  # type: ignore[attr-defined]  # as the class has it
    assert model.calls == 100
    assert not hasattr(SpecTask(job(), data()), "before_step")


def test_weights_lie_as_the_job_says() -> None:
    network = {"name": "trainers.zoo:CNN", "arguments": {"channels": 3, "widths": [4, 4]}}
    plain, last = (
        SpecTask(job(model=network, **more), data()).model() for more in ({}, {"memory_format": "channels_last"})
    )
    kernels = [weight for weight in last.parameters() if weight.dim() == 4]
    assert kernels and all(weight.is_contiguous(memory_format=torch.channels_last) for weight in kernels)
    assert not all(weight.is_contiguous() for weight in kernels)
    assert all(weight.is_contiguous() for weight in plain.parameters())
    with pytest.raises(ValidationError, match="memory_format: not together with task"):
        Job.model_validate(
            {"name": "one", "task": "nets:Task", "memory_format": "channels_last", "stop": {"epochs": 1}}
        )


def test_gradients_are_clipped_in_one_way() -> None:
    with pytest.raises(ValidationError, match="clip_norm and clip_value exclude each other"):
        job(clip_norm=1.0, clip_value=1.0)
    with pytest.raises(ValidationError, match="clip_norm: not together with task"):
        Job.model_validate({"name": "one", "task": "nets:Task", "clip_norm": 1.0, "stop": {"epochs": 1}})


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (None, lambda out, y: functional.cross_entropy(out, y)),
        ({"name": "cross_entropy", "arguments": {"label_smoothing": 0.2}}, lambda out, y: functional.cross_entropy(out, y, label_smoothing=0.2)),
        ({"name": "nets:Scaled", "arguments": {"by": 3.0}}, lambda out, y: functional.cross_entropy(out, y) * 3.0),
        ({"name": "nets:plain", "arguments": {"by": 2.0}}, lambda out, y: functional.cross_entropy(out, y) * 2.0),
    ],
)  # fmt: skip
def test_losses(loss: Any, expected: Callable[..., torch.Tensor]) -> None:
    task = SpecTask(job(loss=loss), data())
    model = task.model()
    assert torch.equal(task.loss(model, BATCH), expected(model(BATCH[0]), BATCH[1]))


def test_a_loss_that_would_pair_every_output_with_every_target_is_refused() -> None:
    task = SpecTask(job(loss="mse_loss", model={"name": "nets:Net", "arguments": {"width": 1}}), data())
    model = task.model()
    with pytest.raises(ValueError, match=r"outputs of shape \(6, 1\) and targets of shape \(6,\)"):
        task.loss(model, (BATCH[0], torch.zeros(6)))
    assert task.loss(model, (BATCH[0], torch.zeros(6, 1))).dim() == 0


def test_metrics_are_sums_and_counts() -> None:
    metrics = ["accuracy", "top5", "mean_absolute_error", "nets:mine", "nets:Counted"]
    task = SpecTask(job(metrics=metrics), data())
    outputs = torch.eye(8)
    model = nn.Identity()
    targets = torch.tensor([0, 1, 2, 3, 0, 0, 0, 0])
    task_metrics = {name: task.metric_objects[name] for name in ("accuracy", "top5", "mine", "Counted")}
    assert {name: metric.state(outputs, targets) for name, metric in task_metrics.items()} == {
        "accuracy": (4.0, 8.0),
        "top5": (float(sum(int(y) in torch.topk(row, 5).indices.tolist() for row, y in zip(outputs, targets))), 8.0),
        "mine": (6.0, 8.0),
        "Counted": (1.0, 8.0),
    }
    found = SpecTask(job(metrics=["mean_absolute_error"]), data()).metrics(
        model, (torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 2.0]))
    )
    assert found == {"mean_absolute_error": (3.0, 2.0)}
    assert SpecTask(job(), data()).metrics(model, BATCH) == {}


def test_top5_of_fewer_than_five_classes_is_all() -> None:
    task = SpecTask(job(metrics=["top5"]), data())
    assert task.metrics(nn.Identity(), (torch.rand(4, 3), torch.tensor([0, 1, 2, 0]))) == {"top5": (4.0, 4.0)}


IMAGES = torch.arange(2 * 4 * 5 * 3, dtype=torch.uint8).reshape(2, 4, 5, 3)


def test_images_of_bytes_are_scaled_and_turned() -> None:
    prepared = InputPreparation(None)(IMAGES)
    assert prepared.dtype == torch.float32 and prepared.shape == (2, 3, 4, 5) and prepared.is_contiguous()
    assert torch.equal(prepared, IMAGES.permute(0, 3, 1, 2).float() / 255)
    grey = InputPreparation(None)(IMAGES[..., 0])
    assert torch.equal(grey, IMAGES[..., 0].float().unsqueeze(1) / 255)


@pytest.mark.parametrize(("mean", "std"), [([0.1, 0.2, 0.3], [0.5, 0.6, 0.7]), ([0.1307], [0.3081])])
def test_normalised_images(mean: list[float], std: list[float]) -> None:
    before = IMAGES.clone()
    prepare = InputPreparation(Normalise(mean=tuple(mean), std=tuple(std)))
    scaled = IMAGES.permute(0, 3, 1, 2).float() / 255
    expected = (scaled - torch.tensor(mean).reshape(-1, 1, 1)) / torch.tensor(std).reshape(-1, 1, 1)
    assert torch.equal(prepare(IMAGES), expected) and torch.equal(prepare(IMAGES), expected)
    assert torch.equal(IMAGES, before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_normalised_inputs_are_rounded_once(dtype: str) -> None:
    exact, rounded = (
        InputPreparation(Normalise(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7), **more))  # type: ignore[arg-type]
        for more in ({}, {"dtype": dtype})
    )
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).repeat(1, 1, 1, 3)
    for inputs in (pixels, torch.linspace(-5, 5, 300).reshape(100, 3)):
        found, wanted = rounded(inputs), exact(inputs)
        assert wanted.dtype == torch.float32 and found.dtype == getattr(torch, dtype)
        assert found.is_contiguous() and torch.equal(found, wanted.to(found.dtype))


def test_a_spec_without_dtype_is_written_as_before() -> None:
    values = {"mean": [0.5], "std": [0.25]}
    assert Normalise.model_validate(values).model_dump(mode="json") == values
    assert Normalise.model_validate({**values, "dtype": "float32"}).model_dump(mode="json") == values
    half = Normalise.model_validate({**values, "dtype": "float16"})
    assert Normalise.model_validate(half.model_dump(mode="json")) == half and half.dtype == "float16"


def test_other_inputs_pass() -> None:
    prepare = InputPreparation(None)
    for inputs in (torch.rand(2, 3), torch.arange(4), IMAGES[0, 0], {"a": IMAGES}, (IMAGES, IMAGES), 3):
        assert prepare(inputs) is inputs


def test_other_inputs_are_normalised_along_axis_1() -> None:
    prepare = InputPreparation(Normalise(mean=(1.0, 2.0), std=(2.0, 4.0)))
    floats = torch.tensor([[1.0, 2.0], [3.0, 10.0]])
    assert torch.equal(prepare(floats), torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    assert floats[1, 0] == 3.0
    assert prepare(torch.ones(5, 2, 3, 3, dtype=torch.float64)).dtype == torch.float32
    assert torch.equal(prepare(torch.ones(3, 2, dtype=torch.uint8)), torch.tensor([[0.0, -0.25]] * 3))
    with pytest.raises(ValueError, match="normalise has 2 values, and the inputs have 3 channels"):
        prepare(IMAGES)


def test_loss_and_metrics_prepare_what_arrives() -> None:
    task = SpecTask(job(metrics=["accuracy"]), data(normalise={"mean": [0.5], "std": [0.25]}))
    model = task.model()
    raw = torch.arange(24, dtype=torch.uint8).reshape(6, 2, 2, 1)
    outputs = model((raw.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25)
    assert torch.equal(task.loss(model, (raw, BATCH[1])), functional.cross_entropy(outputs, BATCH[1]))
    right = float((outputs.argmax(1) == BATCH[1]).sum())
    assert task.metrics(model, (raw, BATCH[1])) == {"accuracy": (right, 6.0)}


class Remembering(nn.Module):
    """Calls a model once for one input object."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.input, self.output = model, None, None

    def forward(self, inputs: Any) -> Any:
        if inputs is not self.input:
            self.input, self.output = inputs, self.model(inputs)
        return self.output


def test_loss_and_metrics_can_share_a_forward_pass() -> None:
    task = SpecTask(job(metrics=["accuracy"]), data())
    model = task.model()
    raw = torch.arange(24, dtype=torch.uint8).reshape(6, 2, 2, 1)
    once = Remembering(model)
    task.loss(once, (raw, BATCH[1]))
    task.metrics(once, (raw, BATCH[1]))
    assert model.calls == 1


def test_a_buffer_that_is_filled_anew_is_prepared_anew() -> None:
    task = SpecTask(job(metrics=["accuracy"]), data())
    model = task.model()
    raw = torch.zeros(6, 2, 2, 1, dtype=torch.uint8)
    first = task.loss(model, (raw, BATCH[1]))
    raw.copy_(torch.arange(24, dtype=torch.uint8).reshape(raw.shape))
    again = task.loss(model, (raw, BATCH[1]))
    assert not torch.equal(first, again)
    outputs = model(raw.permute(0, 3, 1, 2).float() / 255)
    assert torch.equal(again, functional.cross_entropy(outputs, BATCH[1]))
    assert task.metrics(model, (raw, BATCH[1]))["accuracy"][0] == float((outputs.argmax(1) == BATCH[1]).sum())


def own(task: Any, **keys: Any) -> Job:
    return Job.model_validate({"name": "own", "task": task, "stop": {"epochs": 1}, **keys})


def test_a_task_class_keeps_its_parts() -> None:
    task = SpecTask(own({"name": "nets:Task", "arguments": {"width": 5}}))
    model = task.model()
    assert isinstance(model.layer, torch.nn.Linear) and model.layer.out_features == 5
    assert isinstance(task.optimizer(model), torch.optim.Adam)
    assert (task.batch_size, task.seed, task.scheduler(task.optimizer(model))) == (32, 0, None)
    assert task.dataset(True) == "train" and task.dataset(False) is None
    assert torch.equal(task.loss(model, BATCH), functional.cross_entropy(model(BATCH[0]), BATCH[1]))
    right = float((model(BATCH[0]).argmax(1) == BATCH[1]).sum())
    assert task.metrics(model, BATCH) == {"accuracy": (right, 6.0)}
    raw = IMAGES
    assert task.prepare(raw) is raw


def test_a_full_task_class_with_data_of_the_spec() -> None:
    task = SpecTask(own("nets:FullTask", data="d"), data())
    model = task.model()
    raw = torch.zeros(6, 2, 2, 1, dtype=torch.uint8)
    assert task.loss(model, (raw, BATCH[1])).dim() == 0
    assert task.metrics(model, (raw, BATCH[1])) == {"seen": (1.0, 1.0)}
    assert isinstance(task.scheduler(task.optimizer(model)), torch.optim.lr_scheduler.StepLR)
    with pytest.raises(ValueError, match="the samples of job 'own' come from data 'd'"):
        task.dataset(True)


def test_names_that_lead_nowhere() -> None:
    with pytest.raises(ReferenceProblem, match="'SDG' is not an optimizer.*nearest: SGD"):
        SpecTask(job(optimizer="SDG"), data())


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_ids_become_int64_for_the_network_and_its_loss(dtype: torch.dtype) -> None:
    ids = torch.tensor([[0, 60000], [3, 4]]).to(dtype)
    prepared = InputPreparation(None)(ids)
    assert prepared.dtype == torch.int64 and prepared.tolist() == [[0, 60000], [3, 4]]
    task, scores = SpecTask(job(metrics=["accuracy"]), data()), torch.rand(2, 5)
    for small in (dtype, torch.int32):
        classes = torch.tensor([1, 4]).to(small)
        wanted = functional.cross_entropy(scores, classes.to(torch.int64))
        assert torch.equal(task.loss(nn.Identity(), (scores, classes)), wanted)
        assert task.metrics(nn.Identity(), (scores, classes))["accuracy"][1] == 2.0
