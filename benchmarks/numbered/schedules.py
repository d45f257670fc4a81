"""The learning rate of each step of networks that move between devices, against torch's schedules in a plain loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Adam, lr_scheduler

from benchmarks.bars import Bar, bar
from benchmarks.numbered.runs import Folder

RATE, EPOCHS, SAMPLES, BATCH, WORKERS = 0.1, 6, 90, 16, 2
STEPS = -(-(SAMPLES // WORKERS) // BATCH)  # of an epoch
RUN = EPOCHS * STEPS
MODULE = f"""
import json, os, torch
from torch import nn
class Rows:
    def __init__(self, train=True):
        g = torch.Generator().manual_seed(int(train)); self.x = torch.randn({SAMPLES}, 8, generator=g)
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i], int(self.x[i, 0] > 0)
class Net(nn.Linear):
    def __init__(self): super().__init__(8, 2)
class Noting(torch.optim.Adam):
    def __init__(self, params, lr, file): super().__init__(params, lr); self.file = file
    def step(self, closure=None):
        group = self.param_groups[0]; weight = group["params"][0]
        if weight.device.type == "cpu":
            noted = [int(self.state[weight].get("step", 0)), group["lr"]]
            with open(self.file, "a") as f: f.write(json.dumps(noted) + "\\n")
        return super().step(closure)
def half(step): return 0.5 ** step
def Halving(optimizer): return torch.optim.lr_scheduler.LambdaLR(optimizer, half)
class Task:
    schedule_each = "epoch"
    batch_size = {BATCH}
    def __init__(self, file): self.file = file
    def model(self): return Net()
    def optimizer(self, model): return Noting(model.parameters(), {RATE}, self.file)
    def scheduler(self, optimizer): return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    def dataset(self, train): return Rows(train)
"""
Case = tuple[dict[str, Any], Callable[[Adam], Any], bool]
"""Keys of the job; the schedule of a plain loop; whether that is stepped once an epoch."""


def _warmed(length: int, after: Callable[[Adam], Any] | None, factor: float = 0.01) -> Callable[[Adam], Any]:
    def made(optimizer: Adam) -> Any:
        rising = lr_scheduler.LinearLR(optimizer, factor, total_iters=length)
        return lr_scheduler.SequentialLR(optimizer, [rising, after(optimizer)], [length]) if after else rising

    return made


def _named(name: str, each: str = "step", **arguments: Any) -> dict[str, Any]:
    return {"schedule": {"name": name, "each": each, "arguments": arguments}}


CASES: Mapping[str, Case] = {
    "cosine": (_named("CosineAnnealingLR", T_max="run"), lambda o: lr_scheduler.CosineAnnealingLR(o, RUN), False),
    "cosine-epochs": (
        _named("CosineAnnealingLR", "epoch", T_max="run"), lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS), True,
    ),
    "cosine-number": (_named("CosineAnnealingLR", T_max=5), lambda o: lr_scheduler.CosineAnnealingLR(o, 5), False),
    "restarts": (
        _named("CosineAnnealingWarmRestarts", T_0=4, T_mult=2),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4, 2), False,
    ),
    "one-cycle": (
        _named("OneCycleLR", max_lr=0.3, total_steps="run"), lambda o: lr_scheduler.OneCycleLR(o, 0.3, RUN), False,
    ),
    "one-cycle-epochs": (
        _named("OneCycleLR", "epoch", max_lr=0.3, total_steps="run"),
        lambda o: lr_scheduler.OneCycleLR(o, 0.3, EPOCHS), True,
    ),
    "poly": (
        _named("PolynomialLR", total_iters="run", power=2.0), lambda o: lr_scheduler.PolynomialLR(o, RUN, 2.0), False,
    ),
    "linear": (
        _named("LinearLR", start_factor=1.0, end_factor=0.1, total_iters="run"),
        lambda o: lr_scheduler.LinearLR(o, 1.0, 0.1, RUN), False,
    ),
    "constant": (
        _named("ConstantLR", factor=0.5, total_iters=4), lambda o: lr_scheduler.ConstantLR(o, 0.5, 4), False,
    ),
    "step": (_named("StepLR", step_size=7, gamma=0.5), lambda o: lr_scheduler.StepLR(o, 7, 0.5), False),
    "step-epochs": (
        _named("StepLR", "epoch", step_size=2, gamma=0.5), lambda o: lr_scheduler.StepLR(o, 2, 0.5), True,
    ),
    "milestones": (
        _named("MultiStepLR", milestones=[3, 9], gamma=0.3), lambda o: lr_scheduler.MultiStepLR(o, [3, 9], 0.3), False,
    ),
    "milestones-epochs": (
        _named("MultiStepLR", "epoch", milestones=[2, 4], gamma=0.3),
        lambda o: lr_scheduler.MultiStepLR(o, [2, 4], 0.3), True,
    ),
    "exponential": (_named("ExponentialLR", gamma=0.9), lambda o: lr_scheduler.ExponentialLR(o, 0.9), False),
    "exponential-epochs": (
        _named("ExponentialLR", "epoch", gamma=0.7), lambda o: lr_scheduler.ExponentialLR(o, 0.7), True,
    ),
    "cyclic": (
        _named("CyclicLR", base_lr=0.01, max_lr=0.1, step_size_up=3),
        lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3), False,
    ),
    "halving": (
        {"schedule": {"name": "noting:Halving", "each": "epoch"}},
        lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.5**step), True,
    ),
    "warm-steps": (
        {"warm_up": {"steps": 5}, **_named("CosineAnnealingLR", T_max="run")},
        _warmed(5, lambda o: lr_scheduler.CosineAnnealingLR(o, RUN - 5)), False,
    ),
    "warm-epochs": (
        {"warm_up": {"epochs": 1, "start_factor": 0.1}, **_named("PolynomialLR", total_iters="run")},
        _warmed(STEPS, lambda o: lr_scheduler.PolynomialLR(o, RUN - STEPS), 0.1), False,
    ),
    "warm-fraction": (
        {"warm_up": {"fraction": 0.25}, **_named("ExponentialLR", gamma=0.95)},
        _warmed(round(RUN / 4), lambda o: lr_scheduler.ExponentialLR(o, 0.95)), False,
    ),
    "warm-each-epoch": (
        {"warm_up": {"epochs": 2}, **_named("CosineAnnealingLR", "epoch", T_max="run")},
        _warmed(2, lambda o: lr_scheduler.CosineAnnealingLR(o, EPOCHS - 2)), True,
    ),
    "warm-alone": ({"warm_up": {"steps": 6}}, _warmed(6, None), False),
}  # fmt: skip
FIXED = {
    "name": "schedules", "resources": {"trainers": 2, "device": "cpu"},
    "data": {"d": {"train": "noting:Rows", "held_out": {"source": "noting:Rows", "arguments": {"train": False}}}},
}  # fmt: skip


def bars() -> list[Bar]:
    """Measure all."""
    return [*rate_bars(), *length_bars()]


def spec() -> dict[str, Any]:
    """Each case as a job, and a task that is stepped once an epoch; jobs come one after the other, so others move."""
    common = {"data": "d", "model": "noting:Net", "batch_size": BATCH, "virtual_workers": WORKERS, "seed": 3}
    jobs: list[dict[str, Any]] = []
    for name, (keys, _, _) in CASES.items():
        optimizer = {"name": "noting:Noting", "arguments": {"lr": RATE, "file": f"{name}.txt"}}
        jobs.append({"name": name, **common, "optimizer": optimizer, "stop": {"epochs": EPOCHS}, **keys})
    task = {"name": "noting:Task", "arguments": {"file": "task.txt"}}
    of_task = {"batch_size": BATCH, "virtual_workers": WORKERS, "stop": {"epochs": EPOCHS}}
    return {**FIXED, "jobs": [*jobs, {"name": "task", "task": task, **of_task}]}


def rate_bars() -> list[Bar]:
    """How many steps' learning rates differ from a plain loop's."""
    with Folder({"noting.py": MODULE, "schedules.yaml": json.dumps(spec())}) as folder:
        folder.run("schedules.yaml", "r")
        found = []
        wanted = {name: (made, by_epoch) for name, (_, made, by_epoch) in CASES.items()}
        wanted["task"] = (lambda o: lr_scheduler.StepLR(o, 2, 0.5), True)
        for name, (made, by_epoch) in wanted.items():
            file = folder.path / f"{name}.txt"
            lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
            count = different(lines, plain(made, by_epoch))
            found.append(bar(f"schedule {name}: steps with another rate than torch's", count, "0", count == 0))
    return found


def plain(made: Callable[[Adam], Any], by_epoch: bool) -> list[float]:
    """The learning rate of each step in a plain loop."""
    optimizer = Adam([torch.nn.Parameter(torch.zeros(1))], RATE)
    schedule, rates = made(optimizer), []
    for _ in range(EPOCHS):
        for _ in range(STEPS):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if not by_epoch:
                schedule.step()
        if by_epoch:
            schedule.step()
    return rates


def different(noted: Sequence[tuple[int, float]], wanted: Sequence[float]) -> int:
    """How many steps differ; where several trainers take a step, each of them notes it."""
    rates: dict[int, set[float]] = {}
    for step, rate in noted:
        rates.setdefault(step, set()).add(rate)
    return len([step for step, rate in enumerate(wanted) if rates.pop(step, None) != {rate}]) + len(rates)


def length_bars() -> list[Bar]:
    """What is said of schedules whose length is not the run's."""
    jobs = {"jobs": [{**spec()["jobs"][0], "name": "short", **_named("CosineAnnealingLR", T_max=EPOCHS)}]}
    cycle = {"jobs": [{**jobs["jobs"][0], **_named("OneCycleLR", max_lr=0.1, total_steps=RUN - 1)}]}
    keys = {key: value for key, value in cycle["jobs"][0].items() if key not in ("name", "batch_size")}
    search = {"search": {
        "name": "b-{trial}", "job": keys, "over": {"batch_size": {"choice": [16, 8]}}, "sampler": "grid",
        "metric": "loss", "width": 1,
    }}  # fmt: skip
    files = {"short": {**FIXED, **jobs}, "cycle": {**FIXED, **cycle}, "search": {**FIXED, **search}}
    texts = {f"{name}.yaml": json.dumps(each) for name, each in files.items()}
    with Folder({"noting.py": MODULE, **texts}) as folder:
        plan, run = (folder.fleet(*words) for words in (("plan", "short.yaml"), ("run", "short.yaml", "--out", "r")))
        refused = [folder.fleet("run", f"{name}.yaml", "--out", name) for name in ("cycle", "search")]
    warned = [code == 0 and "T_max: 6 counts steps" in said for code, said in (plan, run)]
    ends = [code == 2 and "OneCycleLR raises an error" in said for code, said in refused]
    return [
        bar("plan and run that warn of a schedule by epochs that counts steps", sum(warned), "2", all(warned)),
        bar("OneCycleLR too short, a job's and a trial's: refused at the start", sum(ends), "2", all(ends)),
    ]
