"""Jobs that move in place: no bit tells of it, and a member that goes missing in the middle is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainers.programs.drive import run
from tests.trainers.programs.interrupted_resize import TIMEOUT
from tests.trainers.programs.resizing import CASES, EACH, HISTORIES, History
from trainers import Checkpoint, Group, read
from trainers.job.resize import Move, joining
from trainers.state.tree import flatten


@pytest.fixture(scope="module")
def moved(mpi: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the checkpoints at the ends of all histories."""
    folder = tmp_path_factory.mktemp("resizing")
    mpi(4, "resizing.py", str(folder), "host")
    return folder


@pytest.fixture(scope="module")
def moved_between_devices(mpi: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for every second history, whose trainers send what lies on their devices from one to another."""
    folder = tmp_path_factory.mktemp("resizing-devices")
    mpi(4, "resizing.py", str(folder), "device")
    return folder


@pytest.fixture(scope="module")
def still() -> dict[str, Checkpoint]:
    """What each case comes to on one trainer that never moves."""
    checkpoints = {}
    for case in CASES:
        checkpoint = run(case, Group.alone()).snapshot()
        assert checkpoint is not None
        checkpoints[case.name] = checkpoint
    return checkpoints


def differing(got: Checkpoint, wanted: Checkpoint) -> list[str]:
    """The paths of what is not the same to the last bit; "" stands for everything that is no array."""
    (structure, arrays), (expected, others) = (flatten(checkpoint.as_tree()) for checkpoint in (got, wanted))
    assert arrays.keys() == others.keys()
    found = [path for path, array in arrays.items() if array.tobytes() != others[path].tobytes()]
    return found if structure == expected else ["", *found]


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.name)
def test_a_moved_job_equals_one_that_never_moved(history: History, moved: Path, still: dict[str, Checkpoint]) -> None:
    assert not differing(read(moved / f"{history.name}.h5"), still[history.case.name]), history.segments


@pytest.mark.parametrize("history", HISTORIES[:: EACH // 2 + 1], ids=lambda history: history.name)
def test_so_does_one_that_moved_between_devices(
    history: History, moved_between_devices: Path, still: dict[str, Checkpoint]
) -> None:
    got = read(moved_between_devices / f"{history.name}.h5")
    assert not differing(got, still[history.case.name]), history.segments


def test_the_comparison_can_fail(moved: Path) -> None:
    case = CASES[0]
    checkpoint = run(case, Group.alone(), until=13).snapshot()
    assert checkpoint is not None
    found = differing(read(moved / f"{case.name}-history-0.h5"), checkpoint)
    assert "" in found and any("random" in path for path in found) and any("parameters" in path for path in found)


def test_the_histories_hold_every_kind_of_move() -> None:
    moves = [
        (history.case.virtual_workers, before, after)
        for history in HISTORIES
        for (_, before, _), (_, after, _) in zip(history.segments, history.segments[1:])
    ]
    assert any(not set(before) & set(after) for _, before, after in moves), "disjoint"
    assert any(len(before) < len(after) for _, before, after in moves)
    assert any(len(before) > len(after) for _, before, after in moves)
    assert any(workers % len(after) for workers, _, after in moves), "uneven"
    assert any(before[0] != after[0] and before[0] in after for _, before, after in moves), "another master"


def test_some_histories_deal_the_workers_out_in_uneven_shares() -> None:
    uneven = [shares for history in HISTORIES for _, _, shares in history.segments if len(set(shares)) > 1]
    assert len({len(shares) for shares in uneven}) == 3 and any(max(shares) - min(shares) > 2 for shares in uneven)


def test_newcomers_stand_in_chains_behind_the_old_trainers() -> None:
    move = Move((4, 2), (2, 0, 1, 3))
    assert move.newcomers == (0, 1, 3)
    assert {rank: move.neighbours(rank) for rank in move.everyone} == {
        4: (None, 0), 0: (4, 3), 3: (0, None), 2: (None, 1), 1: (2, None),
    }  # fmt: skip


def test_each_worker_has_one_old_and_one_new_owner() -> None:
    assert Move((0,), (1, 0, 2)).owners(8) == [(0, 1)] * 3 + [(0, 0)] * 3 + [(0, 2)] * 2
    with pytest.raises(ValueError, match="4 trainers for 3 virtual workers: give a job between 1 and 3 trainers"):
        Move((0,), (0, 1, 2, 3)).owners(3)


def test_a_trainer_that_has_not_joined_yet_says_so() -> None:
    group = joining([3, 1], 1)
    assert (group.index, group.size, group.block(5)) == (1, 2, range(3, 5))
    with pytest.raises(RuntimeError, match=r"call trainers\.resize first"):
        group.agree()
    with pytest.raises(ValueError, match=r"rank 2 cannot join a group of ranks \[3, 1\]"):
        joining([3, 1], 2)


def saw(mpi: Callable[..., None], folder: Path, what: str) -> list[list[str]]:
    """What each rank that lived wrote: how its resize ended, and its steps and number of virtual workers."""
    mpi(3, "interrupted_resize.py", what, str(folder), outlive=what == "killed")
    return [path.read_text().split("\n") for path in sorted(folder.glob("rank-*.txt"))]


@pytest.mark.slow
def test_a_newcomer_that_gives_up_tells_the_others_why(mpi: Callable[..., None], tmp_path: Path) -> None:
    first, second, newcomer = saw(mpi, tmp_path, "refused")
    reason = "PeerFailed 2: MemoryError: no room for the newcomer"
    # The old trainers are as they were; their job goes on from its last checkpoint.
    assert first == [reason, "2 2"] and second == [reason, "2 1"]
    assert newcomer[0] == "raised: no room for the newcomer"


@pytest.mark.parametrize("what", [pytest.param("absent", marks=pytest.mark.slow), "killed"])
def test_a_newcomer_that_never_comes_or_is_killed_is_named(what: str, mpi: Callable[..., None], tmp_path: Path) -> None:
    """It is killed in the middle: with its contexts come, and the shared state on its way."""
    lived = saw(mpi, tmp_path, what)
    assert len(lived) == 2, lived
    (first, second), waited = lived, f"waited {TIMEOUT[what]:g} s for rank 2: no message came"
    assert first == ["PeerSilent [2]", "2 2"]
    assert second[0].startswith(f"PeerFailed 0: PeerSilent: {waited}")
    assert second[1] == "2 1"
