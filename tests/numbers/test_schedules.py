"""Schedules count steps or epochs, and know how long the run is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import SGD, lr_scheduler

from benchmarks.numbered.schedules import length_bars, rate_bars
from fleet.models.errors import ModelsError
from fleet.models.extension import _check_schedules
from fleet.spec import Job, SpecError, SpecTask, check, loads, results_mapping
from fleet.spec.run_length import Length, follows_run, length_misfits
from fleet.spec.semantics import schedule_notes
from tests.live.support import parts
from trainers import Group, Trainer
from trainers.task.loss import UnfitTask

SAMPLES = 96


def job(**keys: Any) -> Job:
    base = {"model": {"name": "trainers.zoo:MLP", "arguments": {"widths": [4]}}, "data": "d", "batch_size": 16}
    optimizer = {"name": "SGD", "arguments": {"lr": 0.1}}
    return Job.model_validate({"name": "j", **base, "optimizer": optimizer, "stop": {"epochs": 6}, **keys})


def named(name: str, each: str = "step", **arguments: Any) -> dict[str, Any]:
    return {"name": name, "each": each, "arguments": arguments}


def built(asked: Job, samples: int = SAMPLES) -> Any:
    task = SpecTask(asked)
    task.samples = lambda: samples
    return task.scheduler(SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1))


@pytest.mark.slow
def test_rates_of_a_run_are_torchs_in_a_plain_loop() -> None:
    assert [each for each in rate_bars() if not each["ok"]] == []


@pytest.mark.slow
def test_what_is_said_of_lengths_before_a_run() -> None:
    assert [each for each in length_bars() if not each["ok"]] == []


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ({}, 36),
        ({"batch_size": 8}, 72),
        ({"batch_size": 48}, 12),
        ({"virtual_workers": 2}, 18),
        ({"virtual_workers": 5, "batch_size": 7}, 18),
        ({"accumulate": 4}, 36),
        ({"stop": {"epochs": 2}}, 12),
        ({"schedule": named("CosineAnnealingLR", "epoch", T_max="run")}, 6),
    ],
)
def test_the_length_of_the_run_is_each_jobs_own(keys: dict[str, Any], steps: int) -> None:
    keys = {"schedule": named("CosineAnnealingLR", T_max="run"), **keys}
    assert built(job(**keys)).T_max == steps


def test_the_run_is_what_the_warm_up_leaves_of_it() -> None:
    asked = job(warm_up={"fraction": 0.25}, schedule=named("CosineAnnealingLR", T_max="run"))
    made = built(asked)
    assert made._milestones == [9] and made._schedulers[1].T_max == 27
    asked = job(warm_up={"epochs": 2}, schedule=named("PolynomialLR", "epoch", total_iters="run"))
    assert built(asked)._milestones == [2] and built(asked)._schedulers[1].total_iters == 4


def test_a_warm_up_alone_rises_and_stays() -> None:
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    task = SpecTask(job(warm_up={"epochs": 0.5, "start_factor": 0.5}))
    task.samples = lambda: SAMPLES
    schedule, rates = task.scheduler(optimizer), []
    assert schedule is not None
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[0] == 0.05 and rates[3:] == [pytest.approx(0.1)] * 3 and sorted(rates) == rates


def test_a_length_that_nobody_knows_is_told() -> None:
    task = SpecTask(job(schedule=named("CosineAnnealingLR", T_max="run")))
    with pytest.raises(ValueError, match="is known once its data are open"):
        task.scheduler(SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1))


@pytest.mark.parametrize("warm_up", [{}, {"epochs": 1, "steps": 5}, {"fraction": 1.5}, {"steps": 0}])
def test_a_warm_up_has_one_length(warm_up: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must have one|less_than|greater_than"):
        job(warm_up=warm_up)


@pytest.mark.parametrize("warm_up", [{"steps": 5}, {"epochs": 0.5}])
def test_a_schedule_by_epochs_warms_up_by_epochs(warm_up: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no number of whole epochs"):
        job(warm_up=warm_up, schedule=named("StepLR", "epoch", step_size=2))


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (named("CosineAnnealingLR", T_max=6), "comes back up after 6 steps, and down again"),
        (named("CosineAnnealingLR", T_max=36), ""),
        (named("CosineAnnealingLR", T_max=72), "never comes to its end"),
        (named("CosineAnnealingLR", "epoch", T_max=6), ""),
        (named("CosineAnnealingLR", "epoch", T_max=3), "comes back up after 3 epochs"),
        (named("CosineAnnealingLR", T_max="run"), ""),
        (named("PolynomialLR", total_iters=6), "0 from step 6 on"),
        (named("OneCycleLR", max_lr=0.1, total_steps=50), "never comes to its end"),
        (named("StepLR", step_size=2, gamma=0.1), "from step 8 on the learning rate is less than 0.0001"),
        (named("StepLR", "epoch", step_size=2, gamma=0.1), ""),
        (named("StepLR", step_size=12), ""),
        (named("ExponentialLR", gamma=0.95), ""),
        (named("CosineAnnealingWarmRestarts", T_0=6), ""),
    ],
)
def test_a_schedule_that_is_not_as_long_as_the_run_is_told(schedule: dict[str, Any], told: str) -> None:
    asked = job(schedule=schedule)
    found = list(length_misfits(asked, Length.of(asked, SAMPLES)))
    assert bool(found) == bool(told) and all(told in text for text in found)


def test_a_warm_up_that_is_longer_than_the_run_is_told() -> None:
    asked = job(warm_up={"steps": 36})
    (told,) = length_misfits(asked, Length.of(asked, SAMPLES))
    assert "takes 36 steps, and the whole run 36" in told


SPEC = """
name: s
data: {d: {train: {source: "digits:Digits"}}}
defaults:
  data: d
  model: {name: "trainers.zoo:MLP", arguments: {widths: [4]}}
  optimizer: {name: SGD, arguments: {lr: 0.1}}
  batch_size: 16
  stop: {epochs: 6}
"""


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ("{max_lr: 0.1, total_steps: 30}", "after its 30 steps, and the run has 36 steps (6 epochs of 6 steps)"),
        ("{max_lr: 0.1, epochs: 6, steps_per_epoch: 5}", "after its 30 steps"),
        ("{max_lr: 0.1, total_steps: 36}", ""),
        ("{max_lr: 0.1, total_steps: run}", ""),
    ],
)
@pytest.mark.parametrize("is_trial", [False, True])
def test_a_cycle_that_ends_before_the_run_is_refused(arguments: str, refused: str, is_trial: bool) -> None:
    keys = f"schedule: {{name: OneCycleLR, arguments: {arguments}}}"
    own = f"jobs: [{{name: j, {keys}}}]"
    searched = (
        f"search: {{name: 't-{{trial}}', job: {{{keys}}}, over: {{batch_size: {{choice: [32, 16]}}}}, "
        "sampler: grid, metric: loss, width: 1}"
    )
    found = check(loads(SPEC + (searched if is_trial else own)), {"d": (SAMPLES, None)})
    rules = [each.rule for each in found if "OneCycleLR" in each.rule]
    assert bool(rules) == bool(refused) and all(refused in rule for rule in rules)


def test_notes_name_jobs_and_likely_trials() -> None:
    keys = "schedule: {name: CosineAnnealingLR, arguments: {T_max: 36}}"
    spec = loads(
        SPEC + f"search: {{name: 't-{{trial}}', job: {{{keys}}}, over: {{batch_size: {{choice: [16, 8]}}}}, "
        f"sampler: grid, metric: loss, width: 1}}\njobs: [{{name: j, {keys}, virtual_workers: 2}}]"
    )
    notes = schedule_notes(spec, {"d": (SAMPLES, None)})
    assert len(notes) == 2 and notes[0].startswith("job j: ") and notes[1].startswith("trials such as t-0: ")
    assert schedule_notes(spec, {}) == ()


def test_old_specs_have_their_digests() -> None:
    (old,) = results_mapping(loads(SPEC + "jobs: [{name: j, schedule: {name: StepLR, arguments: {step_size: 3}}}]"))[
        "jobs"
    ].values()
    assert old["schedule"] == {"name": "StepLR", "arguments": {"step_size": 3}} and "warm_up" not in old
    (new,) = results_mapping(loads(SPEC + "jobs: [{name: j, schedule: {name: StepLR, each: epoch}}]"))["jobs"].values()
    assert new["schedule"]["each"] == "epoch"


def test_each_is_step_or_epoch() -> None:
    with pytest.raises(SpecError, match=r"schedule\.each"):
        loads(SPEC + "jobs: [{name: j, schedule: {name: StepLR, each: batch}}]")


class Stepped:
    """A task whose schedule is stepped once an epoch."""

    schedule_each = "epoch"

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(3, 2)

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return SGD(model.parameters(), lr=1.0)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.StepLR(optimizer, 1, 0.5)

    def dataset(self, train: bool) -> Any:
        return None


def test_a_task_may_count_epochs() -> None:
    trainer, rates = Trainer(Stepped(), 1, Group.alone()), []
    with trainer.reducing():
        for _ in range(3):
            for _ in range(2):
                rates.append(trainer.optimizer.param_groups[0]["lr"])
                trainer.step([(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))])
            trainer.finish_epoch({})
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_a_task_that_counts_neither_is_refused() -> None:
    class Wrong(Stepped):
        schedule_each = "batch"

    with pytest.raises(UnfitTask, match="choose 'step' or 'epoch'"):
        Trainer(Wrong(), 1, Group.alone())


def test_a_tasks_cycle_that_ends_before_the_run_is_refused_at_the_jobs_start() -> None:
    class Cycled(Stepped):
        schedule_each = "step"

        def scheduler(self, optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
            return lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=30)

    parts.Cycled = Cycled  # type: ignore[attr-defined]
    keys = {"name": "j", "batch_size": 16, "stop": {"epochs": 6}}
    task = SpecTask(Job.model_validate({**keys, "task": "tests.live.support.parts:Cycled"}))
    task.samples = lambda: SAMPLES
    with pytest.raises(UnfitTask, match="raises an error after 30 steps, and the run has 36 steps"):
        task.scheduler(SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"schedule": named("CosineAnnealingLR", T_max="run")}, "as long as the run"),
        ({"warm_up": {"fraction": 0.1}}, "a fraction of the run"),
        ({"schedule": named("CosineAnnealingLR", "epoch", T_max=6)}, "8 epochs take 8 epochs"),
        ({"schedule": named("StepLR", "epoch", step_size=2)}, ""),
        ({"warm_up": {"steps": 3}}, ""),
    ],
)
def test_a_schedule_of_the_runs_length_is_not_extended(keys: dict[str, Any], told: str) -> None:
    asked = job(**keys)
    task = SpecTask(asked)
    task.samples = lambda: SAMPLES
    trainer = Trainer(task, 1, Group.alone())
    trainer.steps, trainer.epoch = 36, 6
    saved = trainer.snapshot()
    assert saved is not None and bool(follows_run(asked)) == ("run" in told)
    if not told:
        _check_schedules(asked, saved, 8, lambda _: None)
        return
    with pytest.raises(ModelsError, match=told):
        _check_schedules(asked, saved, 8, lambda _: None)
