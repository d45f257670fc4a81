"""Gradients that Horovod adds: the same weights within rounding, in groups that come and go."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.programs.cases import Case
from tests.trainers.programs.drive import run
from trainers import Checkpoint, Group, Trainer, read
from trainers.reduce.horovod import HorovodReduce, horovod_reduce
from trainers.reduce.ordered_reduce import OrderedReduce

RANKS = 4
TRAINED = (Case("mlp", "adam", 3), Case("cnn", "sgd", 3), Case("cnn", "sgd", 4))
FILES = [(case, f"on-{members}") for case in TRAINED for members in range(1, case.virtual_workers + 1)]
FILES.append((Case("cnn", "sgd", 3), "moved"))

needs_horovod = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("horovod") is None, reason="no Horovod here: batch_scripts/install_horovod.sh"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, mpi: Callable[..., None]) -> Path:
    """What the members have written."""
    folder = tmp_path_factory.mktemp("horovod")
    mpi(RANKS, "horovod_members.py", str(folder))
    return folder


@pytest.fixture(scope="module")
def in_order() -> dict[Case, Checkpoint]:
    """Each case with the sums of plain DDP."""
    made = {case: run(case, Group.alone()).snapshot() for case in TRAINED}
    return {case: checkpoint for case, checkpoint in made.items() if checkpoint is not None}


def seen(folder: Path, what: str) -> list[Any]:
    return [json.loads((folder / f"horovod-{rank}.json").read_text())[what] for rank in range(RANKS)]


class TestMembers:
    pytestmark = needs_horovod

    @pytest.mark.parametrize(("case", "name"), FILES, ids=lambda value: getattr(value, "name", value))
    def test_weights_are_those_of_plain_ddp_within_rounding(
        self, case: Case, name: str, folder: Path, in_order: dict[Case, Checkpoint]
    ) -> None:
        got, wanted = read(folder / f"{case.name}-{name}.h5"), in_order[case]
        assert got.steps == wanted.steps
        for parameter, weights in wanted.parameters.items():
            torch.testing.assert_close(got.parameters[parameter], weights, rtol=1e-4, atol=1e-6)
        for mine, theirs in zip(got.history, wanted.history):
            assert mine == pytest.approx(theirs, rel=1e-4)

    @pytest.mark.parametrize("what", ["right", "right afterwards"])
    def test_groups_train_side_by_side_and_are_formed_anew(self, folder: Path, what: str) -> None:
        assert [set(sums) for sums in seen(folder, what)] == [{True}] * RANKS

    @pytest.mark.parametrize("what", ["failing", "failing before"])
    def test_member_that_raises_is_named(self, folder: Path, what: str) -> None:
        told = "PeerFailed 3: ArithmeticError: the loss is nan"
        assert seen(folder, what) == [told, told, told, "raised: the loss is nan"]

    def test_members_that_are_waited_for_are_named(self, folder: Path) -> None:
        said = [f"PeerSilent {[other for other in range(RANKS) if other != rank]}" for rank in range(1, RANKS)]
        assert seen(folder, "silent") == ["elsewhere", *said]


def test_trainer_that_is_alone_needs_no_horovod() -> None:
    assert isinstance(horovod_reduce(Group.alone(), 3, torch.device("cpu")), OrderedReduce)
    case = Case("mlp", "sgd", 2)
    alone = Trainer(case, 2, Group.alone(), reducer=horovod_reduce)
    with alone.reducing():
        assert "horovod" not in sys.modules


def test_sums_outside_reducing_are_refused() -> None:
    reducer = HorovodReduce(Group.alone(), torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r"inside Trainer\.reducing\(\)"):
        reducer.sum([torch.ones(1)])
    with pytest.raises(TypeError, match=r"Group\.form"):
        reducer.start()
    reducer.stop(together=True)
