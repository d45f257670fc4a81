"""Metrics are tried on real held-out samples before a run: what does not fit, or depends on batches, is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.numbered import measured_networks as own
from fleet.session.input_checks import BatchTrials
from fleet.spec import EnsembleSpec, Problem, SpecTask
from fleet.workers.datasets import facts_of, open_datasets
from fleet.workers.runtime import Rehearsal, Runtime

MODULE = own.__name__
SGD = {"name": "SGD", "arguments": {"lr": 0.1}}
MORE = """
import torch, torchmetrics
from torch import nn
from benchmarks.numbered.measured_networks import Net, Tokens
def raises(outputs, targets): raise RuntimeError("no such thing\\nat all")
def no_pair(outputs, targets): return 0.5
def counts_padding(outputs, targets):
    return float((outputs.argmax(1) == targets).sum()), float(targets.numel())
def error(outputs, targets): return float((outputs.argmax(1) != targets).sum()), float(len(targets))
def weighted(outputs, targets): return nn.functional.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 20.0]))
CALLS = 0
def counting(outputs, targets):
    global CALLS
    CALLS += 1
    return weighted(outputs, targets) * CALLS
class OfMeans(torchmetrics.Metric):
    full_state_update = False
    def __init__(self):
        super().__init__(); self.add_state("mean", torch.tensor(0.0), "mean")
    def update(self, outputs, targets): self.mean = outputs.mean()
    def compute(self): return self.mean
class Huge(nn.Module):
    def __init__(self):
        super().__init__(); self.wide, self.head = nn.Linear(8, 900_000), nn.Linear(900_000, 3)
    def forward(self, inputs): return self.head(self.wide(inputs))
class Objects(Tokens):
    metrics = {"gathered": raises, "error": lambda outputs, targets: (0.0, 1.0)}
class Odd(Tokens):
    def model(self): raise RuntimeError("not here")
    metrics = {"gathered": raises}
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tried_more.py").write_text(MORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def runtime(*jobs: dict[str, Any]) -> Runtime:
    data = {
        name: {
            part: {"source": f"{MODULE}:{source}", "arguments": {"train": part == "train", **arguments}}
            for part in ("train", "held_out")
        }
        for name, source, arguments in (
            ("rows", "Rows", {}), ("column", "Rows", {"form": "float column"}), ("hot", "Rows", {"form": "one hot"}),
            ("tags", "Tags", {}), ("masks", "Masks", {}),
        )
    }  # fmt: skip
    data["tags"]["collate"] = "pad"  # type: ignore[assignment]
    whole = [
        {"name": f"j{number}", "stop": {"epochs": 1}, "evaluation_batch_size": 4}
        | ({} if "task" in job else {"data": "rows", "model": f"{MODULE}:Net", "optimizer": SGD})
        | job
        for number, job in enumerate(jobs)
    ]
    used = {name: section for name, section in data.items() if name in {job.get("data") for job in whole}}
    spec = EnsembleSpec.from_mapping({"name": "s", "data": used, "jobs": whole})
    return Runtime(spec, facts_of(open_datasets(spec)))


def problems(*jobs: dict[str, Any]) -> list[Problem]:
    made = runtime(*jobs)
    return list(BatchTrials(open_datasets(made.spec)).problems(made))


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({"metrics": [f"{MODULE}:area"]}, "metric area: of the same samples in one batch it gives .* in two .*"),
        ({"metrics": [f"{MODULE}:Gathering"]}, "metric Gathering: of the same samples"),
        ({"metrics": [f"{MODULE}:Gathering"], "evaluation_batch_size": 61}, "it keeps what it has seen"),
        ({"metrics": ["tried_more:OfMeans"]}, "metric OfMeans: of the same samples in one batch"),
        ({"data": "tags", "model": f"{MODULE}:Tagger", "metrics": ["tried_more:counts_padding"]}, "in one batch it"),
        ({"metrics": ["tried_more:raises"]}, r"RuntimeError: no such thing, of outputs of shape \(61, 2\) and targ"),
        ({"metrics": ["tried_more:no_pair"]}, r"it gives 0.5, and must give \(sum over the samples, number"),
        ({"data": "column", "metrics": ["r2"]}, "several values of a sample"),
        ({"data": "masks", "metrics": ["accuracy"], "model": f"{MODULE}:Segmenter", "loss": "mse_loss"}, None),
        ({"data": "hot", "metrics": ["accuracy"], "loss": "mse_loss"}, "one class of several, or several labels"),
        (
            {"model": "tried_more:Huge", "data": "column", "metrics": ["mean_squared_error"]},
            "each output needs a target",
        ),
        ({"task": "tried_more:Objects"}, "metric gathered: it raises RuntimeError"),
    ],
)
def test_what_is_told_before_a_run(job: dict[str, Any], told: str | None) -> None:
    found = problems(job)
    if told is None:
        assert not found
        return
    (problem,) = found
    assert problem.path in ("jobs[0].metrics[0]", "jobs[0].task.name") and problem.mend
    assert re.search(told, problem.rule), problem.rule


@pytest.mark.parametrize(
    "job",
    [
        {"metrics": ["accuracy", "auroc", "f1", f"{MODULE}:found", f"{MODULE}:nobody", "tried_more:error"]},
        {"metrics": [f"{MODULE}:area"], "evaluation_batch_size": 61},
        {"data": "hot", "metrics": ["accuracy", "f1"]},
        {"data": "tags", "model": f"{MODULE}:Tagger", "metrics": ["accuracy", "word_error_rate", "perplexity"]},
        {"data": "masks", "model": f"{MODULE}:Segmenter", "metrics": ["mean_iou", "torchmetrics:JaccardIndex"]},
        {"model": "tried_more:Huge", "metrics": ["accuracy", "tried_more:raises"]},
        {"task": f"{MODULE}:Tokens"},
        {"task": "tried_more:Odd"},
    ],
)
def test_what_can_be_measured_passes(job: dict[str, Any]) -> None:
    assert not problems(job)


def test_a_trial_draws_nothing_and_each_kind_of_job_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = runtime({"metrics": ["accuracy"]}, {"metrics": ["accuracy"], "seed": 3}, {"metrics": ["tried_more:raises"]})
    before, asked = torch.random.get_rng_state(), list[str]()
    task = Runtime.task

    def asks(self: Runtime, name: str) -> SpecTask:
        asked.append(name)
        return task(self, name)

    monkeypatch.setattr(Runtime, "task", asks)
    datasets = open_datasets(made.spec)
    found = list(BatchTrials(datasets).problems(made))
    assert [problem.path for problem in found] == ["jobs[2].metrics[0]"] and asked == ["j0", "j2"]
    assert torch.equal(torch.random.get_rng_state(), before)
    rehearsed = Runtime(made.spec, made.facts, Rehearsal(1.0))
    assert not list(BatchTrials(datasets).problems(rehearsed))


@pytest.mark.parametrize("keys", [{}, {"accumulate": 8, "evaluation_batch_size": 61}])
def test_a_loss_that_is_no_mean_over_samples_and_says_no_weight_is_refused(keys: dict[str, Any]) -> None:
    (found,) = problems({"loss": "tried_more:weighted", **keys})
    assert found.path == "jobs[0].loss" and "no mean over samples" in found.rule
    assert found.mend is not None and found.mend.startswith("let the loss return (mean, weight)")


def test_where_a_loss_is_asked_for_one_batch_alone_it_may_be_anything() -> None:
    assert not problems({"loss": "tried_more:weighted", "evaluation_batch_size": 61})
    assert not problems({"loss": "tried_more:counting"}), "another value each time tells nothing"


def test_a_job_that_comes_later_is_told_as_often_as_it_is_offered() -> None:
    made = runtime({"metrics": ["accuracy"]})
    trials = BatchTrials(open_datasets(made.spec))
    assert not list(trials.problems(made))
    job = made.spec.jobs[0].model_copy(update={"name": "later"})
    weighted = job.model_validate({**job.model_dump(mode="json"), "loss": "tried_more:weighted"})
    for _ in range(2):
        assert not list(trials.newcomer_problems(made.with_job(job), job))
        assert [each.path for each in trials.newcomer_problems(made.with_job(weighted), weighted)] == ["jobs[1].loss"]
