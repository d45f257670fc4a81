"""The same group and the same bits over torch.distributed."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.programs.cases import CASES, Case
from tests.trainers.programs.drive import run
from tests.trainers.support.side_by_side import run_side_by_side
from trainers import Group, read
from trainers.state.tree import encode

PROGRAMS = Path(__file__).parent / "programs"
RANKS = 2
THREE = [case for case in CASES if case.virtual_workers == 3 and case.rule == "sgd"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, started: Any) -> Path:
    """What two processes that torch.distributed joins have written."""
    folder = tmp_path_factory.mktemp("torch")
    started([["torch_members.py", str(rank), str(RANKS), str(folder)] for rank in range(RANKS)])
    return folder


@pytest.fixture(scope="module")
def started() -> Any:
    """Run programs side by side; fail with the output of one that fails."""

    def run(programs: list[list[str]]) -> None:
        root = str(PROGRAMS.parents[2])
        environment = {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PATH": "/usr/bin:/bin"}
        commands = [[sys.executable, str(PROGRAMS / name), *arguments] for name, *arguments in programs]
        run_side_by_side(commands, environment, 120)

    return run


def seen(folder: Path, rank: int) -> dict[str, Any]:
    return dict(json.loads((folder / f"torch-{rank}.json").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["torch", "rounds"])
@pytest.mark.parametrize("case", THREE, ids=lambda case: case.name)
def test_the_bits_do_not_depend_on_the_transport(case: Case, way: str, folder: Path) -> None:
    wanted = run(case, Group.alone()).snapshot()
    assert wanted is not None
    got = read(folder / f"{case.name}-over-{way}.h5")
    assert encode(got.as_tree()) == encode(wanted.as_tree())


@pytest.mark.slow
def test_members_talk_over_torch(folder: Path) -> None:
    assert all(seen(folder, rank)["collectives"]["bytes"] == "x" * 3001 for rank in range(RANKS))
    assert seen(folder, 0)["collectives"]["gathered"] == ["", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["failing", "failing beside"])
def test_a_member_that_raises_is_named(folder: Path, way: str) -> None:
    assert seen(folder, 1)[way] == "raised: the loss is nan"
    assert seen(folder, 0)[way] == "PeerFailed 1: ArithmeticError: the loss is nan"


@pytest.mark.slow
def test_a_member_that_is_silent_is_named(folder: Path) -> None:
    assert seen(folder, 0)["silent"] == seen(folder, 0)["silent beside"] == "PeerSilent [1]"


def test_a_process_group_for_devices_alone_is_refused() -> None:
    importlib.import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend
    from trainers.messages.torch_backend import TorchTransport

    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("fake", store=store, rank=0, world_size=2)
    try:
        with pytest.raises(ValueError, match='init_process_group\\("cpu:gloo,cuda:nccl"\\)'):
            TorchTransport()
    finally:
        torch.distributed.destroy_process_group()
