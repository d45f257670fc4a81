"""--set path=value."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.spec import EnsembleSpec, Problem, SpecError, loads
from fleet.spec.document import read_override


@pytest.mark.parametrize(
    ("override", "job", "path", "value"),
    [
        ("jobs.0.seed=7", "mlp-1", "seed", 7),
        ("jobs.mlp-1.stop.epochs=2", "mlp-1", "stop.epochs", 2),
        ("jobs.mlp-1.schedule.name=StepLR", "mlp-1", "schedule.name", "StepLR"),
        ("jobs.mlp-1.loss=mse_loss", "mlp-1", "loss.name", "mse_loss"),
        ("jobs.1.grid.batch_size=4", "cnn-16", "batch_size", 4),
        ("jobs.cnn-16.batch_size=4", "cnn-16", "batch_size", 4),
        ("jobs.cnn-16.model.arguments.width=32", "cnn-16", "model.arguments.width", 32),
        ("jobs.net-2.optimizer.arguments.lr=1e-4", "net-2", "optimizer.arguments.lr", 1e-4),
        ("jobs.2.sample.model.arguments={depth: 2}", "net-0", "model.arguments.depth", 2),
        ("defaults.stop.epochs=1", "net-1", "stop.epochs", 1),
        ("defaults.optimizer={name: Adam, arguments: {lr: 0.1}}", "mlp-1", "optimizer.arguments", {"lr": 0.1}),
        (" jobs.0.metrics = [top5] ", "mlp-1", "metrics", ["top5"]),
        ("jobs.0.model.arguments.text=a=b", "mlp-1", "model.arguments.text", "a=b"),
    ],
)
def test_values_of_jobs(text: str, override: str, job: str, path: str, value: object) -> None:
    found: Any = loads(text, [override]).job(job).model_dump(mode="json")
    for part in path.split("."):
        found = found[part]
    assert found == value


def test_other_values(text: str) -> None:
    spec = loads(
        text,
        ["policy=local", "resources.trainers=", "profile.batches=5", "profile.timed=5", "data.digits.held_out=null"],
    )
    assert spec.policy.name == "local" and spec.policy.parameters == {}
    assert spec.resources.trainers is None and spec.profile.batches == 5 and spec.data["digits"].held_out is None
    assert len(loads(text, ["jobs.1.grid.over.model.arguments.width=[1, 2, 3]"]).jobs) == 7
    assert loads(text, ["policy.name=local", "policy.name=baseline"]).policy.name == "baseline"


def test_sections_that_are_not_in_the_file(small: dict[str, Any]) -> None:
    spec = EnsembleSpec.from_mapping(
        small, ["checkpoints.every=5", "jobs.one.schedule.arguments.T_max=3", "jobs.one.schedule.name=X"]
    )
    assert spec.checkpoints.every == 5
    schedule = spec.jobs[0].schedule
    assert schedule is not None and schedule.arguments == {"T_max": 3}


def test_names_that_hold_dots(small: dict[str, Any]) -> None:
    small["jobs"][0]["name"] = "net-0.5.x"
    assert EnsembleSpec.from_mapping(small, ["jobs.net-0.5.x.stop.epochs=9"]).jobs[0].stop.epochs == 9


def problems_with(text: str, *overrides: str) -> tuple[Problem, ...]:
    with pytest.raises(SpecError) as caught:
        loads(text, overrides)
    return caught.value.problems


@pytest.mark.parametrize(
    ("override", "path", "rule", "suggestion"),
    [
        ("resorces.trainers=2", "resorces", "unknown key 'resorces'", "resources.trainers"),
        ("resources.traners=2", "resources.traners", "unknown key 'traners'", "resources.trainers"),
        ("jobs.0.sede=2", "jobs[0].sede", "unknown key 'sede'", "jobs.0.seed"),
        ("jobs.mlp-1.stop.epoch=2", "jobs[0].stop.epoch", "unknown key 'epoch'", "jobs.mlp-1.stop.epochs"),
        ("jobs.cnn-8.stop.epoch=2", "jobs[1].grid.stop.epoch", "unknown key 'epoch'", "jobs.cnn-8.stop.epochs"),
        ("jobs.cnn-8.batchsize=2", "jobs[1].grid.batchsize", "unknown key 'batchsize'", "jobs.cnn-8.batch_size"),
        ("jobs.cn-8.batch_size=2", "jobs.cn-8", "there is no job of this name", "jobs.cnn-8.batch_size"),
        ("jobs.9.seed=2", "jobs.9", "jobs has the indices 0 to 2", "jobs.2.seed"),
        ("jobs.cnn-8=2", "jobs.cnn-8", "changed by one of its keys", "jobs.cnn-8"),
        (
            "data.digits.normalise.mean.x=1",
            "data.digits.normalise.mean.x",
            "a list takes an index",
            "data.digits.normalise.mean.0",
        ),
        ("seed.x=1", "seed", "with nothing inside it", "seed"),
        ("jobs.cnn-8.seed.x=1", "jobs.cnn-8.seed", "with nothing inside it", "seed"),
        ("resources.trainers", "resources.trainers", "written path=value", None),
        ("=3", "", "written path=value", None),
        ("resources..trainers=3", "resources..trainers", "written path=value", None),
        ("seed=[1", "seed", "the value is not valid YAML", None),
        ("seed=!!python/name:os.system x", "seed", "is refused", None),
        ("seed=x", "seed", "must be a whole number", None),
    ],
)
def test_mistakes(text: str, override: str, path: str, rule: str, suggestion: str | None) -> None:
    (problem,) = problems_with(text, override)
    assert problem.path == path and rule in problem.rule and problem.suggestion == suggestion
    assert problem.origin == f"--set {override}" and problem.line is None
    assert f"--set {override}" in str(problem)


def test_all_mistakes_with_those_of_the_file(text: str) -> None:
    problems = problems_with(text.replace("every: 1", "evry: 1"), "foo", "jobs.x.seed=1", "seed=-1")
    assert [problem.path for problem in problems] == ["foo", "jobs.x", "seed", "checkpoints.evry"]


def test_an_empty_list_has_no_index(small: dict[str, Any]) -> None:
    small["jobs"][0]["metrics"] = []
    with pytest.raises(SpecError, match=r"jobs\.0\.metrics is empty"):
        EnsembleSpec.from_mapping(small, ["jobs.0.metrics.0=accuracy"])


PARTS = st.lists(st.from_regex(r"[a-zA-Z0-9_-]{1,6}", fullmatch=True), min_size=1, max_size=4)
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.lists(st.integers(), max_size=3)


@settings(max_examples=150, deadline=None)
@given(PARTS, VALUES)
def test_what_is_written_is_read(parts: list[str], value: object) -> None:
    override = read_override(".".join(parts) + "=" + yaml.safe_dump(value, default_flow_style=True))
    assert override.parts == tuple(parts) and override.value == value


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=20))
def test_any_text_is_applied_or_refused(override: str) -> None:
    try:
        loads("name: x\ndata: {d: {train: 'm:T'}}\njobs: [{name: a, task: 'm:T', stop: {epochs: 1}}]\n", [override])
    except SpecError as error:
        assert error.problems
