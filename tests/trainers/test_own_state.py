"""What a task itself keeps: in checkpoints as it was, refused by name where it cannot be kept or is not shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim

from trainers import Checkpoint, CheckpointError, Group, Trainer, UntoldState, read, write
from trainers.task.task_options import TaskState, check_task


class Plain:
    batch_size = 4

    def model(self) -> nn.Module:
        return nn.Linear(2, 2)

    def optimizer(self, model: nn.Module) -> optim.Optimizer:
        return optim.SGD(model.parameters(), 0.1)

    def dataset(self, train: bool) -> None:
        return None


class Keeping(Plain):
    """Keeps what `after` makes of what it has."""

    def __init__(self, kept: Any, after: Callable[[Any, nn.Module], None] = lambda kept, model: None) -> None:
        self.kept, self.after = kept, after

    def after_step(self, model: nn.Module) -> None:
        self.after(self.kept, model)

    def state(self) -> Any:
        return self.kept

    def load_state(self, state: Any) -> None:
        self.kept = state


def train(task: Any, steps: int = 1) -> Trainer:
    trainer = Trainer(task, 2, Group.alone())
    for _ in range(steps):
        trainer.step([(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]))] * 2)
    return trainer


def checkpoint_of(trainer: Trainer) -> Checkpoint:
    checkpoint = trainer.snapshot()
    assert checkpoint is not None
    return checkpoint


def test_it_comes_back_from_a_file_as_it_was(tmp_path: Path) -> None:
    kept = {
        "average": [torch.tensor([1.5, -0.0]), torch.ones(2, 3, dtype=torch.bfloat16)],
        "queue": np.arange(6, dtype=np.float32).reshape(2, 3),
        "more": {"steps": 7, "rate": 0.1, "name": "MoCo", "none": None, 3: (True, False)},
    }
    write(tmp_path / "x.h5", checkpoint_of(train(Keeping(kept))))
    other = Keeping({})
    train(other).restore(read(tmp_path / "x.h5"))
    assert other.kept["more"] == kept["more"]
    assert [tensor.tolist() for tensor in other.kept["average"]] == [[1.5, 0.0], [[1, 1, 1]] * 2]
    assert str(other.kept["average"][0][1].item()) == "-0.0" and other.kept["average"][1].dtype == torch.bfloat16
    assert other.kept["queue"].tolist() == [[0, 1, 2], [3, 4, 5]] and other.kept["queue"].dtype == np.float32


def test_a_snapshot_is_not_touched_by_later_steps() -> None:
    def grow(kept: Any, model: nn.Module) -> None:
        kept["sum"] += 1
        kept["array"] += 1
        kept["list"].append(1)

    trainer = train(Keeping({"sum": torch.zeros(2), "array": np.zeros(2), "list": []}, grow))
    checkpoint = checkpoint_of(trainer)
    trainer.step([(torch.ones(4, 2), torch.tensor([0, 1, 0, 1]))] * 2)
    state = checkpoint.task_state
    assert (state["sum"].tolist(), state["array"].tolist(), state["list"]) == ([1, 1], [1, 1], [1])


def test_checkpoints_of_tasks_without_state_are_what_they_were() -> None:
    tree = checkpoint_of(train(Plain())).as_tree()
    assert "task_state" not in tree and Checkpoint.from_tree(tree).task_state is None


@pytest.mark.parametrize(
    ("kept", "what"),
    [({"seen": {1, 2}}, "/seen holds a set"), ({"net": nn.Linear(1, 1)}, "/net holds a Linear"), ({0.5: 1}, "key 0.5")],
)
def test_what_a_checkpoint_cannot_hold_is_refused_in_the_first_step(kept: Any, what: str) -> None:
    with pytest.raises(UntoldState, match=f"{what}.*load_state"):
        train(Keeping(kept))


def test_nothing_is_no_state() -> None:
    with pytest.raises(UntoldState, match=r"state\(\) gives None; give {}"):
        train(Keeping(None))


def test_a_forward_pass_that_changes_it_is_refused() -> None:
    class Eager(Keeping):
        def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            self.kept["batches"] += 1
            return nn.functional.cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(UntoldState, match=r"changes the task's own state.*after_step\(model\)"):
        train(Eager({"batches": 0, "loss": float("nan")}))


def test_one_that_is_not_the_same_on_all_trainers_is_refused() -> None:
    ours, theirs = TaskState(Keeping({"w": torch.zeros(3)})), TaskState(Keeping({"w": torch.tensor([0, 0, 1e-30])}))
    ours.hold_equal([ours.digest()] * 3)
    with pytest.raises(UntoldState, match="not the same on all trainers: the first and number 3 differ"):
        ours.hold_equal([ours.digest(), ours.digest(), theirs.digest()])


def test_a_task_with_state_needs_a_checkpoint_with_it() -> None:
    with pytest.raises(CheckpointError, match="task's own state is not kept, that of .* is kept by state"):
        train(Keeping({})).restore(checkpoint_of(train(Plain())))


@pytest.mark.parametrize("name", ["state", "load_state"])
def test_one_method_without_the_other_is_refused(name: str) -> None:
    task = Plain()
    setattr(task, name, lambda *_: {})
    with pytest.raises(
        ValueError, match=r"the task has (load_state\(state\) and no state|state\(\) and no load_state)"
    ):
        check_task(task)
