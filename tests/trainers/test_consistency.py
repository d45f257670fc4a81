"""The contract of consistency: the bits of stock DDP on any number of trainers, across moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainers.programs.cases import CASES, Case, state_arrays
from tests.trainers.programs.drive import run
from tests.trainers.support.equality_broken_rules import divide, never_rebuild, share_random_state
from trainers import Checkpoint, Group, read
from trainers.reduce.ordered_reduce import VirtualRing


def expected(folder: Path, case: Case, rank: int) -> dict[str, np.ndarray]:
    with np.load(folder / f"{case.name}-{rank}.npz") as arrays:
        return dict(arrays)


def differing(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> list[str]:
    """The names whose bits differ."""
    assert got.keys() == wanted.keys()
    return [name for name in wanted if got[name].tobytes() != wanted[name].tobytes()]


def of_checkpoint(case: Case, checkpoint: Checkpoint, rank: int) -> dict[str, np.ndarray]:
    arrays = {f"parameter {name}": value for name, value in checkpoint.parameters.items()}
    for index, state in checkpoint.optimizer["state"].items():
        arrays.update({f"optimizer {index} {name}": value for name, value in state.items() if value is not None})
    arrays.update({f"buffer {name}": value for name, value in checkpoint.workers[rank]["buffers"].items()})
    return {name: value.numpy() for name, value in arrays.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_moved_job_has_the_bits_of_stock_ddp(case: Case, stock_ddp: Path, elastic: Path) -> None:
    for members in range(1, case.virtual_workers + 1):
        checkpoint = read(elastic / f"{case.name}-on-{members}-whole.h5")
        for rank in range(case.virtual_workers):
            got = of_checkpoint(case, checkpoint, rank)
            assert not differing(got, expected(stock_ddp, case, rank)), f"{members} trainers, virtual rank {rank}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_metrics_do_not_depend_on_the_trainers(case: Case, elastic: Path) -> None:
    histories = [read(elastic / f"{case.name}-on-{m}-whole.h5").history for m in range(1, case.virtual_workers + 1)]
    assert all(history == histories[0] for history in histories)
    assert len(histories[0]) >= 1
    assert set(histories[0][0]) == {"loss", "test_loss", "accuracy"}


def alone(case: Case) -> dict[str, np.ndarray]:
    """Train a case in this process, without MPI; return what rank 0 must agree in."""
    trainer = run(case, Group.alone())
    buffers = zip((name for name, _ in trainer.model.named_buffers()), trainer.workers[0].buffers)
    return {**state_arrays(trainer.model, trainer.optimizer), **{f"buffer {n}": b.numpy() for n, b in buffers}}


THREE = [case for case in CASES if case.virtual_workers == 3 and case.rule == "sgd"]


@pytest.mark.parametrize("case", THREE, ids=lambda case: case.name)
def test_one_process_without_mpi_has_the_bits_of_stock_ddp(case: Case, stock_ddp: Path) -> None:
    assert not differing(alone(case), expected(stock_ddp, case, 0))


# Each rule of the contract, broken on purpose: if such a run still agreed, the tests above would show nothing.


def add_in_rank_order(self: VirtualRing, vectors: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(vectors)).cumsum(0)[-1].clone()


def keep_own_buffers(self: Any) -> list[torch.Tensor]:
    return list(self.workers[-1].buffers)


BROKEN = {
    "the sum in rank order": ("trainers.reduce.ordered_reduce.VirtualRing.sum", add_in_rank_order, "mlp"),
    "no rebuilt buckets": ("trainers.reduce.buckets.Layout.rebuilt", never_rebuild, "mlp"),
    "a division for the multiplication": ("trainers.reduce.gradients.scale", divide, "mlp"),
    "one random state for all": ("trainers.step.virtual_worker.VirtualWorker.__enter__", share_random_state, "mlp"),
    "no base seed drawn by the loader": (
        "trainers.step.virtual_worker.VirtualWorker.open_loader",
        lambda self: None,
        "mlp",
    ),
    "another worker's buffers": ("trainers.job.trainer.Trainer._first_workers_buffers", keep_own_buffers, "cnn"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_shows(rule: str, stock_ddp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, replacement, network = BROKEN[rule]
    case = next(case for case in THREE if case.network == network)
    monkeypatch.setattr(target, replacement)
    assert differing(alone(case), expected(stock_ddp, case, 0))
