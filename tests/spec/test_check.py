# ruff: noqa: E501  (tables of cases, one a line)
"""What takes imports to know; all of it collected, nothing run that should not be."""

from __future__ import annotations

import pathlib
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fleet.spec import EnsembleSpec, Problem, ReferenceProblem, check, importable, load, resolve
from trainers.repeatable.process_settings import ProcessSettings

TOYS = """
    import torch
    from torch import nn

    class Toy(torch.utils.data.Dataset):
        def __init__(self, train=True, size=100):
            self.size = size
        def __len__(self):
            return self.size
        def __getitem__(self, index):
            return torch.zeros(3), 0

    class Net(nn.Module):
        def __init__(self, width, depth=1):
            super().__init__()
            if width < 1:
                raise ValueError(f"width is {width}, and must be at least 1")
            self.layer = nn.Linear(width, 10)

    class Huge(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(10_000_000, 1_000_000)

    class NeedsReal(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))
            assert self.weight.sum().item() == 3

    class Draws(nn.Module):
        def __init__(self):
            super().__init__()
            import random, numpy
            random.random(), numpy.random.rand()
            self.weight = nn.Parameter(torch.tensor([torch.rand(1).item()]))

    class Empty(nn.Module):
        pass

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.none = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(0, 3))
            self.turned = nn.Parameter(torch.ones(3, 2, dtype=torch.complex64).t())

    def unfit():
        return nn.Sequential(nn.LazyLinear(3), nn.SyncBatchNorm(3))

    class Exits(nn.Module):
        def __init__(self):
            raise SystemExit(3)

    def not_a_model():
        return 3

    class Task:
        def model(self): return Net(4)
        def optimizer(self, model): return torch.optim.SGD(model.parameters(), lr=0.1)
        def dataset(self, train): return Toy(train)

    class UnfitTask(Task):
        def model(self): return unfit()

    class WrongTask:
        def modl(self): return Net(4)
        def optimizer(self, model): return None

    class RaisingTask(Task):
        def optimizer(self, model): raise RuntimeError("no optimizer today")

    class Loss(nn.Module):
        def __init__(self, margin): super().__init__()

    def own_loss(outputs, targets, weight=1.0): return outputs.sum() * weight
    def own_metric(outputs, targets): return 1.0, 1.0

    number = 3
"""


@pytest.fixture
def find(
    small: dict[str, Any], module: Callable[[str, str], pathlib.Path], tmp_path: pathlib.Path
) -> Callable[..., tuple[Problem, ...]]:
    """check() of the small spec with some keys changed; modules lie in the test's folder."""
    module("toys", TOYS)

    def problems(job: dict[str, Any] | None = None, lengths: Any = None, **sections: Any) -> tuple[Problem, ...]:
        values = {**small, **sections}
        values["jobs"] = [{**values["jobs"][0], **(job or {})}, *values["jobs"][1:]]
        return check(EnsembleSpec.from_mapping(values, folder=tmp_path), lengths)

    return problems


def test_a_spec_without_mistakes(find: Any) -> None:
    assert find() == ()
    assert find(lengths={"toy": (100, 20)}) == ()


@pytest.mark.parametrize(
    ("job", "path", "rule", "suggestion"),
    [
        ({"model": "toys:Nett"}, "model.name", "toys has no 'Nett'", "toys:Net"),
        ({"model": "toyz:Net"}, "model.name", "there is no module 'toyz'", "toys:Net"),
        ({"model": "trainers.zo:MLP"}, "model.name", "there is no module 'trainers.zo'", "trainers.zoo:MLP"),
        ({"model": "toys.Net"}, "model.name", "is not written module:Name", "toys:Net"),
        ({"model": "Net"}, "model.name", "is not written module:Name", None),
        ({"model": "toys:number"}, "model.name", "is of type int and cannot be called", None),
        ({"model": "toys:not_a_model"}, "model.name", "gives a int, not a torch.nn", None),
        ({"model": "toys:Empty"}, "model", "has no parameters to train", None),
        ({"model": "toys:Exits"}, "model.arguments", "raised SystemExit: 3", None),
        ({"model": {"name": "toys:Net", "arguments": {"widht": 4}}}, "model.arguments.widht", "no argument 'widht'", "width"),
        ({"model": "toys:Net"}, "model.arguments", "needs the argument 'width'", "width"),
        ({"model": {"name": "toys:Net", "arguments": {"width": 0}}}, "model.arguments", "raised ValueError: width is 0", None),
        ({"optimizer": {"name": "SDG", "arguments": {"lr": 1}}}, "optimizer.name", "'SDG' is not an optimizer", "SGD"),
        ({"optimizer": "adamw"}, "optimizer.name", "'adamw' is not an optimizer", "AdamW"),
        ({"optimizer": "LBFGS"}, "optimizer.name", "several times a step", "SGD"),
        ({"optimizer": "Optimizer"}, "optimizer.name", "is not an optimizer", None),
        ({"optimizer": {"name": "SGD", "arguments": {"momentun": 0.9}}}, "optimizer.arguments.momentun", "no argument 'momentun'", "momentum"),
        ({"optimizer": {"name": "SGD", "arguments": {"params": 0.9}}}, "optimizer.arguments.params", "no argument 'params'", None),
        ({"optimizer": {"name": "Adam", "arguments": {"lr": -1.0}}}, "optimizer.arguments", "raised ValueError: Invalid learning rate", None),
        ({"optimizer": "toys:Net"}, "optimizer.arguments", "raised", None),
        ({"schedule": "CosineAnealing"}, "schedule.name", "is not a schedule", "CosineAnnealingLR"),
        ({"schedule": "ReduceLROnPlateau"}, "schedule.name", "wants a metric at each step", "CosineAnnealingLR"),
        ({"schedule": "CosineAnnealingLR"}, "schedule.arguments", "needs the argument 'T_max'", "T_max"),
        ({"schedule": {"name": "StepLR", "arguments": {"step_size": 3, "gama": 1}}}, "schedule.arguments.gama", "no argument 'gama'", "gamma"),
        ({"loss": "crossentropy"}, "loss.name", "is not a loss of torch.nn.functional", "cross_entropy"),
        ({"loss": "relu"}, "loss.name", "is not a loss", None),
        ({"loss": {"name": "cross_entropy", "arguments": {"label_smoothin": 1}}}, "loss.arguments.label_smoothin", "no argument", "label_smoothing"),
        ({"loss": "toys:Loss"}, "loss.arguments", "needs the argument 'margin'", "margin"),
        ({"loss": "toys:number"}, "loss.name", "cannot be called", None),
        ({"metrics": ["acuracy"]}, "metrics[0]", "'acuracy' is not a metric", "accuracy"),
        ({"metrics": ["accuracy", "toys:own_metrc"]}, "metrics[1]", "toys has no 'own_metrc'", "toys:own_metric"),
        ({"metrics": ["toys:number"]}, "metrics[0]", "cannot be called", None),
        ({"data": "toyy"}, "data", "there is no data set 'toyy'; there are toy", "toy"),
        ({"stop": {"epochs": 1, "target": {"acuracy": 1}}}, "stop.target.acuracy", "this job measures loss, test_loss, accuracy", "accuracy"),
        ({"stop": {"epochs": 1, "monitor": "top5"}}, "stop.monitor", "'top5' is not measured", None),
    ],
)  # fmt: skip
def test_mistakes_in_a_job(find: Any, job: dict[str, Any], path: str, rule: str, suggestion: str | None) -> None:
    (problem,) = find(job)
    assert problem.path == f"jobs[0].{path}" and rule in problem.rule
    assert problem.suggestion == suggestion and problem.mend


def test_a_failing_constructor_is_shown_with_its_signature(find: Any) -> None:
    (problem,) = find({"model": {"name": "toys:Net", "arguments": {"width": 0}}})
    assert problem.value == {"width": 0}
    assert problem.rule == "toys:Net raised ValueError: width is 0, and must be at least 1"
    assert problem.mend == "change its arguments; its signature is Net(width, depth=1)"


@pytest.mark.parametrize(
    ("job", "path"),
    [
        ({"model": "toys:unfit"}, "jobs[0].model.name"),
        ({"task": "toys:UnfitTask", "model": None, "optimizer": None, "metrics": []}, "jobs[0].task.name"),
    ],
)
def test_modules_that_virtual_workers_cannot_train(find: Any, job: dict[str, Any], path: str) -> None:
    unsized, synchronised = find(job)
    assert unsized.path == synchronised.path == path
    assert unsized.rule.startswith("module 0 is a LazyLinear") and "zeros" in unsized.mend
    assert synchronised.rule.startswith("module 1 is a SyncBatchNorm") and "GroupNorm" in synchronised.mend


@pytest.mark.parametrize(
    "job",
    [
        {"model": "toys:NeedsReal"},
        {"model": "toys:Huge"},
        {"model": "toys:Scaled"},
        {"loss": {"name": "toys:own_loss", "arguments": {"weight": 2.0}}, "metrics": ["toys:own_metric"]},
        {"loss": {"name": "toys:Loss", "arguments": {"margin": 2.0}}},
        {"stop": {"epochs": 1, "monitor": "test_loss", "target": {"loss": 0.1, "accuracy": 0.9}}},
        {
            "metrics": [{"name": "own_metric", "of": "toys:own_metric", "better": "lower"}],
            "stop": {"epochs": 1, "target": {"own_metric": 0.5}},
        },
        {"schedule": {"name": "OneCycleLR", "arguments": {"max_lr": 0.1, "total_steps": 10}}},
        {"optimizer": "torch.optim:AdamW"},
    ],
)
def test_what_is_right(find: Any, job: dict[str, Any]) -> None:
    assert find(job) == ()


@pytest.mark.parametrize(
    ("task", "path", "rule", "suggestion"),
    [
        ("toys:WrongTask", "task.name", "the task has no method model", "modl"),
        ("toys:RaisingTask", "task.name", "raised RuntimeError: no optimizer today", None),
        ("toys:Tsk", "task.name", "toys has no 'Tsk'", "toys:Task"),
        ({"name": "toys:Task", "arguments": {"x": 1}}, "task.arguments.x", "no argument 'x'", None),
    ],
)
def test_tasks(find: Any, small: dict[str, Any], task: Any, path: str, rule: str, suggestion: str | None) -> None:
    small["jobs"][0] = {"name": "one", "task": "toys:Task", "stop": {"epochs": 1, "monitor": "anything"}}
    assert find() == ()
    problem = find({"task": task, "data": "toy"})[0]
    assert problem.path == f"jobs[0].{path}" and rule in problem.rule and problem.suggestion == suggestion


@pytest.mark.parametrize(
    ("section", "path", "rule", "suggestion"),
    [
        ({"train": "idxx"}, "train.source", "'idxx' is not a source", "idx"),
        ({"train": "toys:Toyy"}, "train.source", "toys has no 'Toyy'", "toys:Toy"),
        ({"train": "toys:number"}, "train.source", "cannot be called", None),
        ({"train": {"source": "toys:Toy", "arguments": {"trian": True}}}, "train.arguments.trian", "no argument 'trian'", "train"),
        ({"train": "toys:Toy", "collate": "pda"}, "collate.name", "'pda' joins no samples", "pad"),
        ({"train": "toys:Toy", "collate": {"name": "pad", "arguments": {"masks": 1}}}, "collate.arguments.masks", "no argument 'masks'", "mask"),
        ({"train": "toys:Toy", "collate": "toys:number"}, "collate.name", "a int cannot be called", None),
        ({"train": "toys:Toy", "collate": "toys:joined"}, "collate.name", "toys has no 'joined'", None),
        ({"train": "toys:Toy", "collate": "pad", "transforms": ["flip"]}, "transforms", "samples that are collated have any shape", None),
        ({"train": "toys:Toy", "sample_bytes": 9}, "sample_bytes", "only samples that are collated", None),
        ({"train": {"source": "idx", "arguments": {"images": "a", "labels": "b"}}, "collate": "pad"}, "train.source", "idx have one shape already", None),
        ({"train": "toys:Toy", "held_out": "nowhere:Toy"}, "held_out.source", "there is no module 'nowhere'", None),
        ({"train": "toys:Toy", "transforms": ["flop"]}, "transforms[0]", "no transform has this name", "flip"),
        ({"train": "toys:Toy", "transforms": ["flip", {"random_crop": {"sise": 3}}]}, "transforms[1]", "no such parameter", None),
        ({"train": "toys:Toy", "held_out_transforms": ["toys:nothing"]}, "held_out_transforms[0]", "has no 'nothing'", None),
    ],
)  # fmt: skip
def test_data(find: Any, section: dict[str, Any], path: str, rule: str, suggestion: str | None) -> None:
    (problem,) = find({"metrics": []}, data={"toy": section})
    assert problem.path == f"data.toy.{path}" and rule in problem.rule and problem.suggestion == suggestion


@pytest.mark.parametrize(
    ("job", "lengths", "path", "rule", "suggestion"),
    [
        (
            {"batch_size": 60, "virtual_workers": 2},
            (100, 20),
            "jobs[0].batch_size",
            "2 virtual workers x 60 = 120 samples a step",
            "50",
        ),
        (
            {"batch_size": 1, "virtual_workers": 101},
            (100, None),
            "jobs[0].virtual_workers",
            "101 virtual workers x 1",
            "100",
        ),
        ({}, (0, 20), "data.toy.train", "has no samples", None),
        ({}, (100, 0), "data.toy.held_out", "has no samples", None),
    ],
)
def test_lengths(find: Any, job: Any, lengths: Any, path: str, rule: str, suggestion: str | None) -> None:
    (problem,) = find(job, lengths={"toy": lengths})
    assert problem.path == path and rule in problem.rule and problem.suggestion == suggestion
    assert find({**job, "batch_size": 50, "virtual_workers": 2}, lengths={"toy": (100, 20), "other": (1, 1)}) == ()


def test_without_held_out_data_only_the_loss_is_measured(find: Any) -> None:
    job = {"stop": {"epochs": 1, "patience": 2}}
    (problem,) = find(job, data={"toy": {"train": "toys:Toy"}})
    assert (
        problem.path == "jobs[0].stop.monitor" and "'test_loss' is not measured; this job measures loss" in problem.rule
    )
    assert find({"stop": {"epochs": 1, "patience": 2, "monitor": "loss"}}, data={"toy": {"train": "toys:Toy"}}) == ()


def test_d2_has_no_compiled_networks(find: Any) -> None:
    (problem,) = find({"compile": True}, determinism="D2")
    assert problem.path == "jobs[0].compile" and "kernels for the device at hand" in problem.rule and problem.mend
    assert find({"compile": "graphs"}) == () and find({"compile": False}, determinism="D2") == ()


@pytest.mark.parametrize(
    ("sections", "path", "rule", "suggestion"),
    [
        ({"resources": {"trainers": 9}}, "resources.trainers", "more than the 1 virtual workers", "1"),
        ({"resources": {"device": "cdua"}}, "resources.device", "not a kind of device", "cuda"),
        ({"profile": {"file": "rats.json"}}, "profile.file", "there is no such file", "rates.json"),
        ({"rehearse": {"rates": "nothing"}}, "rehearse.rates", "there is no such file", None),
        ({"rehearse": {"rates": {"on": {1: 2.0}}}}, "rehearse.rates.on", "there is no job 'on'", "one"),
        ({"policy": "flotila"}, "policy.name", "is not a policy", "flotilla"),
        ({"policy": {"name": "flotilla", "parameters": {"alhpa": 0.5}}}, "policy", "alpha", None),
    ],
)
def test_other_sections(
    find: Any, tmp_path: pathlib.Path, sections: Any, path: str, rule: str, suggestion: str | None
) -> None:
    (tmp_path / "rates.json").write_text("{}")
    (problem,) = find(**sections)
    assert problem.path == path and rule in problem.rule and problem.suggestion == suggestion and problem.mend
    assert find(profile={"file": "rates.json"}, rehearse={"rates": {"one": {1: 2.0}}}) == ()


def test_all_problems_together_and_each_once(find: Any, small: dict[str, Any]) -> None:
    small["defaults"] = small["jobs"][0] | {"optimizer": "SDG"}
    del small["defaults"]["name"]
    small["jobs"] = [{"name": "one"}, {"name": "two"}, {"name": "three", "model": "toys:Nett", "data": "nope"}]
    problems = find(resources={"trainers": 99, "device": "gpu"}, policy={"name": "nobody"})
    assert sorted(problem.path for problem in problems) == [
        "jobs[0].optimizer.name",
        "jobs[2].data",
        "jobs[2].model.name",
        "jobs[2].optimizer.name",
        "policy.name",
        "resources.device",
        "resources.trainers",
    ]


def test_lines_of_the_file_are_told(tmp_path: pathlib.Path, module: Callable[[str, str], pathlib.Path]) -> None:
    module("toys", TOYS)
    (tmp_path / "e.yaml").write_text(
        "name: x\n"
        "data: {toy: {train: 'toys:Toy'}}\n"
        "defaults:\n"
        "  data: toy\n"
        "  stop: {epochs: 1}\n"
        "  optimizer: SDG\n"
        "jobs:\n"
        "  - {name: a, model: {name: 'toys:Net', arguments: {width: 1}}}\n"
        "  - grid:\n"
        "      name: 'g-{width}'\n"
        "      model: 'toys:Net'\n"
        "      over:\n"
        "        model.arguments.width: [4, 0, -1]\n"
    )
    problems = check(load(tmp_path / "e.yaml", ["jobs.g-4.loss=relu"]))
    assert [(problem.path, problem.line, problem.origin) for problem in problems] == [
        ("jobs[1].grid.loss.name", None, "--set jobs.g-4.loss=relu"),
        ("defaults.optimizer.name", 6, None),
        ('jobs[1].grid.over["model.arguments.width"][1]', 13, None),
        ('jobs[1].grid.over["model.arguments.width"][2]', 13, None),
    ]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import nowhere_at_all", "it imports 'nowhere_at_all', which is not there"),
        ("def f(:\n    pass", "raised SyntaxError"),
        ("x = 1\nx / 0", "raised ZeroDivisionError: division by zero (faulty.py, line 2)"),
        ("raise SystemExit('bye')", "raised SystemExit: bye"),
        ("\nimport argparse; argparse.ArgumentParser().parse_args(['x'])", "raised SystemExit: 2 (faulty.py, line 2)"),
        ("class E(Exception):\n    def __str__(self): return 1\nraise E", "raised E: no message"),
    ],
)
def test_modules_that_cannot_be_imported(find: Any, module: Any, source: str, rule: str) -> None:
    module("faulty", source)
    (problem,) = find({"model": "faulty:Net"})
    assert rule in problem.rule and problem.mend and problem.path == "jobs[0].model.name"


@pytest.mark.parametrize(
    ("where", "line", "told"),
    [
        ("module", "torch.set_default_dtype(torch.float64)", "torch.float64"),
        ("constructor", "torch.set_default_dtype(torch.float64)", "torch.float64"),
        ("module", "torch.set_default_device('meta')", "meta"),
    ],
)
def test_what_code_sets_for_all_networks_is_told_and_put_back(
    find: Any, module: Any, where: str, line: str, told: str
) -> None:
    inside = line if where == "constructor" else "pass"
    outside = line if where == "module" else ""
    module("wide", f"import torch\n{outside}\ndef Net():\n    {inside}\n    return torch.nn.Linear(64, 10)")
    problems = find({"model": "wide:Net"})
    assert [problem.path for problem in problems if told in problem.rule] == ["jobs[0].model.name"]
    assert torch.get_default_dtype() == torch.float32 and torch.get_default_device().type == "cpu"


def test_what_trainers_set_themselves_is_put_back(find: Any, module: Any) -> None:
    before = ProcessSettings.now()
    lines = [
        "import os, torch",
        "torch.backends.cudnn.benchmark = True",
        "torch.set_grad_enabled(False)",
        "os.chdir('/')",
    ]
    lines += ["torch.set_num_threads(torch.get_num_threads() + 1)", "torch.use_deterministic_algorithms(True)"]
    lines += ["torch.backends.cuda.matmul.allow_tf32 = True", "torch.autograd.set_detect_anomaly(True)"]
    module("scripted", "\n".join([*lines, "def Net():", "    return torch.nn.Linear(64, 10)"]))
    assert find({"model": "scripted:Net"}) == ()
    assert ProcessSettings.now() == before


def test_random_generators_stay_as_they_were(find: Any) -> None:
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    expected = (random.random(), np.random.rand(), torch.rand(1).item())
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    assert find({"model": "toys:Draws"}) == ()
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


def test_importable_adds_folders_for_its_time(tmp_path: pathlib.Path, module: Any) -> None:
    module("only_here", "class A:\n    class B:\n        value = 7\n")
    before = list(sys.path)
    with pytest.raises(ReferenceProblem, match="there is no module 'only_here'"):
        resolve("only_here:A")
    with importable([tmp_path, tmp_path]):
        assert sys.path == before
        with pytest.raises(ReferenceProblem, match="there is no module 'only_hre'; nearest: only_here:A"):
            resolve("only_hre:A")
        assert resolve("only_here:A.B.value") == 7
        with pytest.raises(ReferenceProblem, match="only_here.A has no 'C'"):
            resolve("only_here:A.C")


@pytest.mark.parametrize("name, what", [("colorsys", "a module of Python's own"), ("yaml", "installed in .*yaml")])
def test_a_module_beside_the_spec_is_refused_where_another_comes_before_it(
    tmp_path: pathlib.Path, module: Any, name: str, what: str
) -> None:
    module(name, "raise AssertionError('it has run')\n")
    with importable([tmp_path]), pytest.raises(ReferenceProblem, match=f"{name} is {what}.* before {tmp_path}/{name}"):
        resolve(f"{name}:safe_load")


def test_what_lies_beside_the_spec_hides_nothing_of_fleet(tmp_path: pathlib.Path) -> None:
    (tmp_path / "trainers").mkdir()
    (tmp_path / "trainers" / "__init__.py").write_text("raise AssertionError('it has run')\n")
    (tmp_path / "torch").mkdir()  # a folder of data
    with importable([tmp_path]):
        assert resolve("trainers.zoo:MLP").__name__ == "MLP" and resolve("torch.nn:Linear").__name__ == "Linear"


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "a:b:c", "a b:c", "os:path.", "../x:y", "os:1", "a..b:c"])
def test_texts_that_name_nothing(text: str) -> None:
    with pytest.raises(ReferenceProblem, match="is not written module:Name"):
        resolve(text)
