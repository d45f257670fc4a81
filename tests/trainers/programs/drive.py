"""How a caller drives a group: through steps and epochs, from a checkpoint or anew."""

from __future__ import annotations

import torch

from tests.trainers.programs.cases import HELD_OUT, SAMPLES, STEPS, Case
from trainers import Checkpoint, Group, Trainer
from trainers.reduce.ordered_reduce import OrderedReduce, ReducerOf


def run(
    case: Case,
    group: Group,
    until: int = STEPS,
    checkpoint: Checkpoint | None = None,
    begin: int = 0,
    reducer: ReducerOf = OrderedReduce,
) -> Trainer:
    """Train from step `begin` (with the checkpoint, on the master, if it is not 0) up to step `until`."""
    trainer = Trainer(case, case.virtual_workers, group, reducer=reducer)
    if begin:
        trainer.restore(checkpoint)
    with trainer.reducing():
        advance(trainer, case, until)
    return trainer


def advance(trainer: Trainer, case: Case, until: int) -> None:
    """Train up to step `until`, through the ends of epochs."""
    inputs, targets = case.dataset(True).tensors
    plan = trainer.plan(SAMPLES)
    while trainer.steps < until:
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(case.seed + trainer.epoch))
        chosen = [order[plan.positions(worker.rank, trainer.step_in_epoch)] for worker in trainer.workers]
        trainer.step([(inputs[indices], targets[indices]) for indices in chosen])
        if trainer.step_in_epoch == plan.steps_per_epoch:
            trainer.finish_epoch(evaluate(trainer, case))


def evaluate(trainer: Trainer, case: Case) -> dict[str, float]:
    inputs, targets = case.dataset(False).tensors
    batches = [(start, (inputs[start : start + 16], targets[start : start + 16])) for start in range(0, HELD_OUT, 16)]
    return trainer.reduce_sums(trainer.evaluate(batches[trainer.group.index :: trainer.group.size]))
