# ruff: noqa: E501  (tables of cases, one a line)
"""Each structural mistake: where, what rule, what is nearest; and all of them in one report."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.spec import EnsembleSpec, Problem, SpecError, loads
from fleet.spec.problem import ABSENT, nearest, written

Change = tuple[str, str]


def problems_in(text: str) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        loads(text)
    return caught.value.problems


def only_problem(text: str) -> Problem:
    (problem,) = problems_in(text)
    return problem


@pytest.mark.parametrize(
    ("old", "new", "path", "rule", "suggestion"),
    [
        # unknown keys
        ("seed: 3\n", "sede: 3\n", "sede", "unknown key 'sede'", "seed"),
        ("defaults:", "defalts:", "defalts", "unknown key 'defalts'", "defaults"),
        ("held_out: {", "heldout: {", "data.digits.heldout", "unknown key 'heldout'", "held_out"),
        ("{trainers: 3}", "{trainer: 3}", "resources.trainer", "unknown key 'trainer'", "trainers"),
        ("stop: {epochs: 8}", "stop: {epoch: 8, epochs: 8}", "defaults.stop.epoch", "unknown key 'epoch'", "epochs"),
        ("    metrics:", "    metrix:", "jobs[0].metrix", "unknown key 'metrix'", "metrics"),
        ("parameters: {", "params: {", "policy.params", "unknown key 'params'", "parameters"),
        ("optimizer: {name: SGD, ", "optimizer: {name: SGD, argument: {}, ", "defaults.optimizer.argument", "unknown key", "arguments"),
        ("{every: 1, ", "{frobnicate: 1, ", "checkpoints.frobnicate", "unknown key 'frobnicate'", None),
        ("  - grid:\n", "  - grid:\n      batchsize: 4\n", "jobs[1].grid.batchsize", "unknown key 'batchsize'", "batch_size"),
        ("{choice: ", "{chioce: ", 'jobs[2].sample.over["model.arguments.width"].chioce', "unknown key 'chioce'", "choice"),
        ("model.arguments.width: [8, 16]", "modle.width: [8, 16]", 'jobs[1].grid.over["modle.width"][0]', "unknown key 'modle'", "model"),
        # wrong types
        ("name: digits", "name: 5", "name", "must be text", None),
        ("name: digits", "name: [a]", "name", "must be text", None),
        ("seed: 3\n", "seed: '3'\n", "seed", "must be a whole number", None),
        ("seed: 3\n", "seed: 3.5\n", "seed", "must be a whole number", None),
        ("seed: 3\n", "seed: true\n", "seed", "must be a whole number", None),
        ("time_scale: 0.5", "time_scale: fast", "rehearse.time_scale", "must be a number", None),
        ("metrics: [accuracy]", "metrics: accuracy", "jobs[0].metrics", "must be a list", None),
        ("policy: {", "policy: [flotilla]\nx-policy: {", "policy", "must be a mapping", None),
        ("arguments: {widths: [128]}", "arguments: [128]", "jobs[0].model.arguments", "must be a mapping", None),
        ("{widths: [128]}", "{widths: {1: 2}}", "jobs[0].model.arguments.widths[1]", "a key here must be text", None),
        ("{widths: [128]}", "{widths: .nan}", "jobs[0].model.arguments", "not a finite number", None),
        ("transforms: [{", "transforms: [5, {", "data.digits.transforms[0]", "must be a mapping", None),
        ("random_crop: {size: 28, padding: 2}", "random_crop: 28", "data.digits.transforms[0].arguments", "must be a mapping", None),
        ("mlp-1: {1: 100.0", "mlp-1: {x: 100.0", "rehearse.rates.mlp-1.x", "a key here must be a whole number", None),
        ("rates: {mlp-1: {1: 100.0, 2: 190}}", "rates: 5", "rehearse.rates", "must be text", None),
        # out of range
        ("seed: 3\n", "seed: -1\n", "seed", "must be at least 0", "0"),
        ("seed: 3\n", "seed: 2147483648\n", "seed", "must be at most 2147483647", "2147483647"),
        ("trainers: 3", "trainers: 0", "resources.trainers", "must be at least 1", "1"),
        ("trainers: 3", "preprocessors: 0", "resources.preprocessors", "must be at least 1", "1"),
        ("stop: {epochs: 8}", "stop: {epochs: 0}", "defaults.stop.epochs", "must be at least 1", "1"),
        ("stop: {epochs: 8}", "stop: {epochs: 8, minimum_improvement: -1}", "defaults.stop.minimum_improvement", "must be at least 0", "0.0"),
        ("stop: {epochs: 8}", "stop: {epochs: 8, patience: 0}", "defaults.stop.patience", "must be at least 1", "1"),
        ("stop: {epochs: 8}", "stop: {epochs: 8, target: {loss: .inf}}", "defaults.stop.target.loss", "must be a finite number", None),
        ("batches: 48", "batches: 49", "profile.batches", "must be at most 48", "48"),
        ("timed: 20", "timed: 21", "profile.timed", "must be at most 20", "20"),
        ("batches: 48", "batches: 10", "profile", "timed is 20, more than the 10 of batches", None),
        ("time_scale: 0.5", "time_scale: 0", "rehearse.time_scale", "must be more than 0", None),
        ("1: 100.0", "1: 0", "rehearse.rates.mlp-1[1]", "must be more than 0", None),
        ("1: 100.0", "0: 100.0", "rehearse.rates.mlp-1[0]", "must be at least 1", "1"),
        ("std: [0.3081]", "std: [0]", "data.digits.normalise.std[0]", "must be more than 0", None),
        ("std: [0.3081]", "std: []", "data.digits.normalise.std", "must have at least 1 element, and has 0", None),
        ("std: [0.3081]", "std: [1, 2]", "data.digits.normalise", "mean has 1 values and std has 2", None),
        ("trainers: 3", "slot_samples: 9, ring_samples: 8", "resources", "slot_samples is 9, more than the 8", None),
        ("trainers: 3", "device: CUDA", "resources.device", "lower-case letters only", "cuda"),
        ("metrics: [accuracy]", "deadline: 0", "jobs[0].deadline", "must be more than 0", None),
        ("metrics: [accuracy]", "arrival: -1", "jobs[0].arrival", "must be at least 0", "0.0"),
        ("metrics: [accuracy]", "batch_range: [8, 4]", "jobs[0].batch_range", "low must not be above high", "[4, 8]"),
        ("metrics: [accuracy]", "batch_range: [1, 4]", "jobs[0]", "must hold virtual_workers x batch_size = 32", None),
        ("metrics: [accuracy]", "virtual_workers: 65537", "jobs[0].virtual_workers", "must be at most 65536", "65536"),
        ("train: true}}", "train: true}, subset: [0, 1, 2, 3]}", "data.digits.train.subset", "at most 3 elements", None),
        ("count: 3", "count: 0", "jobs[2].sample.count", "must be at least 1", "1"),
        ("log_uniform: [0.001, 0.1]", "log_uniform: [0, 0.1]", 'jobs[2].sample.over["optimizer.arguments.lr"].log_uniform[0]', "more than 0", None),
        ("log_uniform: [0.001, 0.1]", "uniform: [2, 1]", 'jobs[2].sample.over["optimizer.arguments.lr"].uniform', "low must not be above high", "[1.0, 2.0]"),
        ("{choice: [8, 16]}", "{choice: [8], integer: [1, 2]}", 'jobs[2].sample.over["model.arguments.width"]', "takes exactly one of", "choice"),
        ("{choice: [8, 16]}", "{}", 'jobs[2].sample.over["model.arguments.width"]', "has none of them", "choice"),
        # names
        ("name: digits", "name: my digits!", "name", "hold only letters, digits", "my-digits"),
        ("name: mlp-1", "name: ../mlp", "jobs[0].name", "must begin with a letter or digit", "mlp"),
        ("name: mlp-1", "name: cnn-8", "jobs[1].grid.name", "the name 'cnn-8' is taken: jobs[0].name (line 14) gives it too", "cnn-8-2"),
        ('"cnn-{width}"', '"cnn"', "jobs[1].grid.name", "the template gives the name 'cnn' twice", "{index}"),
        ('"cnn-{width}"', '"cnn-{widht}"', "jobs[1].grid.name", "the name has no {widht}", "{width}"),
        ('"cnn-{width}"', '"cnn-{width"', "jobs[1].grid.name", "a brace without its partner", None),
        ('"cnn-{width}"', '"cnn-{width:>9999999}"', "jobs[1].grid.name", "is not a format of a number", "{width:.3g}"),
        ('"cnn-{width}"', '"cnn-{width.__class__}"', "jobs[1].grid.name", "the name has no {width.__class__}", "{width}"),
        # what is missing, and what is too much
        ("name: digits\n", "", "name", "required key name is missing", None),
        ("    model: {name: \"trainers.zoo:MLP\", arguments: {widths: [128]}}\n", "", "jobs[0].model", "a job needs a model or a task", None),
        ("  stop: {epochs: 8}\n", "  stop: {}\n", "defaults.stop.epochs", "required key epochs is missing", None),
        ("    metrics: [accuracy]", "    task: toys:Task", "jobs[0].model", "not together with task", None),
        ("count: 3\n", "cuont: 3\n", "jobs[2].sample.count", "required key count is missing", None),
        ("  - grid:\n", "  - name: x\n    grid:\n", "jobs[1].name", "a grid stands alone in its entry", None),
        ("model.arguments.width: [8, 16]}", "model.arguments.width: []}", 'jobs[1].grid.over["model.arguments.width"]', "no values", None),
        ("model.arguments.width: [8, 16]}", "model.arguments.width: 8}", 'jobs[1].grid.over["model.arguments.width"]', "must be a list", None),
        ("over: {model.arguments.width: [8, 16]}", "over: {seed.width: [8, 16]}", 'jobs[1].grid.over["seed.width"]', "seed holds a plain value", "seed"),
        ("over: {model.arguments.width: [8, 16]}", "over: {model.width: [8], model: [a]}", 'jobs[1].grid.over["model.width"]', "lies inside model", None),
        ("over: {model.arguments.width: [8, 16]}", "over: {name: [8, 16]}", "jobs[1].grid.over.name", "not the path of a job's key", None),
        ("  data: digits\n", "  data: digits\n  name: all\n", "defaults.name", "each job has a name of its own", None),
    ],
)  # fmt: skip
def test_each_mistake(text: str, old: str, new: str, path: str, rule: str, suggestion: str | None) -> None:
    assert old in text
    found = problems_in(text.replace(old, new, 1))
    (problem,) = [problem for problem in found if problem.path == path]
    assert rule in problem.rule
    assert problem.suggestion == suggestion
    assert problem.line is not None or problem.path == "name"
    assert problem.mend or problem.suggestion


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("- 1\n", "a spec is a mapping (key: value lines) with name, data, jobs, not a list"),
        ("hello", "not the single value 'hello'"),
        ("null", "not nothing"),
    ],
)
def test_wrong_top_level(text: str, rule: str) -> None:
    problem = only_problem(text)
    assert rule in problem.rule and problem.path == "" and problem.mend


@pytest.mark.parametrize(
    ("jobs", "rule"),
    [("3", "must be a list"), ("{a: 1}", "must be a list"), ("[]", "at least 1 element"), ("", "must be a list")],
)
def test_wrong_jobs(jobs: str, rule: str) -> None:
    problem = only_problem(f"name: x\njobs: {jobs}\n")
    assert rule in problem.rule and problem.path == "jobs" and problem.line == 2


def test_a_job_that_is_no_mapping(text: str) -> None:
    problem = only_problem(text.replace("  - grid:", "  - 3\n  - grid:"))
    assert problem.path == "jobs[1]" and "a job must be a mapping" in problem.rule


def test_without_jobs(text: str) -> None:
    problem = only_problem(text[: text.index("jobs:")])
    assert problem.path == "jobs" and problem.rule == "required key jobs is missing"


def test_defaults_that_are_no_mapping(text: str) -> None:
    problems = problems_in(text.replace("defaults:\n", "defaults: 3\nrest:\n"))
    assert ("defaults", "must be a mapping (key: value lines)") in [
        (problem.path, problem.rule) for problem in problems
    ]


def test_a_mistake_in_defaults_is_told_once_and_there(text: str) -> None:
    problem = only_problem(text.replace("lr: 5e-2, momentum: 0.9}", "lr: 5e-2}, nmae: {}"))
    assert problem.path == "defaults.optimizer.nmae" and problem.line == 11 and problem.suggestion == "name"


def test_a_mistake_in_a_grid_is_told_once(text: str) -> None:
    problem = only_problem(
        text.replace('      model: "trainers.zoo:CNN"\n', '      model: {nam: "trainers.zoo:CNN", name: a}\n', 1)
    )
    assert problem.path == "jobs[1].grid.model.nam" and problem.line == 19 and problem.suggestion == "name"


def test_everything_is_in_one_report(text: str) -> None:
    broken = (
        text.replace("name: digits\n", "name: dig its\n", 1)
        .replace("mean: [0.1307]", "maen: [0.1307]")
        .replace("metrics: [accuracy]", "metrcs: [accuracy]")
        .replace("{width}", "{wdith}")
        .replace("choice", "chocie")
        .replace("trainers: 3", "trainers: 0")
        .replace("every: 1", "every: 0")
        .replace("1: 100.0", "1: -1")
    )
    problems = problems_in(broken)
    assert [problem.path for problem in problems] == [
        "name",
        "data.digits.normalise.mean",
        "data.digits.normalise.maen",
        "jobs[0].metrcs",
        "jobs[1].grid.name",
        'jobs[2].sample.over["model.arguments.width"].chocie',
        "resources.trainers",
        "checkpoints.every",
        "rehearse.rates.mlp-1[1]",
    ]
    lines = [problem.line for problem in problems if problem.line is not None]
    assert lines == sorted(lines)


def test_the_report_can_be_read(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        loads(text.replace("trainers: 3", "trainers: 0").replace("    metrics:", "    metrix:"))
    assert str(caught.value) == (
        "the spec: 2 problems\n"
        "  1. line 16: jobs[0].metrix = ['accuracy']\n"
        "      unknown key 'metrix'; the keys here are accumulate, arrival, autocast, bag, batch, batch_range, batch_size, "
        "clip_norm, clip_value, compile, data, deadline, drop_last, evaluation_batch_size, fold, folds, guaranteed, loss, "
        "memory_format, metrics, minimum_devices, model, name, optimizer and 11 more\n"
        "      mend: rename it to metrics\n"
        "  2. line 29: resources.trainers = 0\n"
        "      must be at least 1\n"
        "      mend: set it to 1 or more"
    )


def test_a_mistake_that_very_many_jobs_share_is_told_once(small: dict[str, Any]) -> None:
    (job,) = small["jobs"][:1]
    jobs = [{**job, "name": f"j{number}", "colour": number} for number in range(30)]
    with pytest.raises(SpecError) as caught:
        EnsembleSpec.from_mapping({**small, "jobs": [*jobs, {**job, "name": "odd", "batch_size": 0}]})
    assert len(caught.value.problems) == 31
    report = str(caught.value)
    assert report.startswith("the spec: 31 problems") and report.count("colour") == 4
    assert "the same at 29 other places, from jobs[1].colour to jobs[29].colour" in report
    assert "jobs[30].batch_size" in report


def test_mistakes_of_python_mappings_have_no_line(small: dict[str, Any]) -> None:
    small["jobs"][0]["nmae"] = 1
    del small["jobs"][0]["optimizer"]
    with pytest.raises(SpecError) as caught:
        EnsembleSpec.from_mapping(small)
    assert [(p.path, p.line, p.value) for p in caught.value.problems] == [
        ("jobs[0].optimizer", None, ABSENT),
        ("jobs[0].nmae", None, 1),
    ]
    with pytest.raises(SpecError, match="a spec is a mapping"):
        EnsembleSpec.from_mapping([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "names", "found"),
    [
        ("Adm", ["Adam", "SGD"], "Adam"),
        ("sgd", ["Adam", "SGD"], "SGD"),
        ("batchsize", ["batch_size", "batch_range"], "batch_size"),
        ("entropy", ["binary_cross_entropy", "cross_entropy"], "cross_entropy"),
        ("zzz", ["Adam", "SGD"], None),
        ("", ["Adam"], None),
        (5, ["5", "6"], "5"),
        ("x", [], None),
    ],
)
def test_nearest(word: object, names: list[str], found: str | None) -> None:
    assert nearest(word, names) == found


def test_paths_as_people_write_them() -> None:
    assert written(("jobs", 2, "optimizer", "lr")) == "jobs[2].optimizer.lr"
    assert written(("over", "a.b", 0)) == 'over["a.b"][0]'
    assert written(()) == ""


@pytest.mark.parametrize(
    ("key", "mend"),
    [
        ("epochs: 3", "write it as stop: {epochs: 3}"),
        ("learning_rate: 0.1", "optimizer: {name: SGD, arguments: {lr: 0.1}}"),
        ("weight_decay: 0.5", "optimizer: {name: SGD, arguments: {weight_decay: 0.5}}"),
        ("model_args: {widths: [3]}", "model: {name: ..., arguments: {'widths': [3]}}"),
        ("lr_scheduler: StepLR", "rename it to schedule"),
        ("world-size: 4", "write virtual_workers: 4"),
        ("gpus: 2", "minimum_devices: 2"),
        ("policy: fifo", "write it beside jobs"),
    ],
)
def test_words_of_other_tools_are_told_in_those_of_a_spec(key: str, mend: str, text: str) -> None:
    (problem,) = problems_in(text.replace("    metrics:", f"    {key}\n    metrics:", 1))
    assert problem.rule.startswith("unknown key") and problem.mend is not None and mend in problem.mend


@pytest.mark.parametrize("key", ["epochs: 3", "optimizer: SGD", "batch_size: 4"])
def test_keys_of_jobs_at_the_top_are_told_where_they_belong(key: str, text: str) -> None:
    (problem,) = problems_in(f"{text}\n{key}\n")
    assert problem.mend is not None and "in a job, or below defaults" in problem.mend
