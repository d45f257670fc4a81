"""A member of a population goes on from another one's weights: whatever goes wrong, it can be done again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.support import copies
from tests.faults.support.power import Choice, Disk, choices, cuts, disk_after, synced, with_own_inodes
from tests.faults.support.shim import ERRORS, Point, Shim, recorded
from tests.faults.support.small_runs import quick_disk
from trainers import Checkpoint, CheckpointError, latest_good, read
from trainers.state.kept_checkpoints import inherited
from trainers.state.tree import flatten

NAME = "epoch-00001-step-000000.h5"
VALUES = {"lr": 0.25}


@pytest.fixture
def disk() -> Iterator[Path]:
    """Holds two members that have been compared."""
    with quick_disk() as folder:
        (folder / "members").mkdir()
        copies.compared(folder / "members")
        yield folder


@pytest.fixture
def wanted(disk: Path) -> str:
    """What member 0 goes on from."""
    mine, theirs = (read(disk / "members" / str(member) / NAME) for member in range(2))
    return bits(inherited(mine, theirs, VALUES))


def bits(saved: Checkpoint) -> str:
    structure, arrays = flatten(saved.as_tree())
    return structure + repr([(name, array.tobytes()) for name, array in sorted(arrays.items())])


def found(folder: Path) -> str | None:
    """The bits of member 0's newest checkpoint; None: none is whole."""
    saved, _ = latest_good(folder / "0")
    return None if saved is None else bits(saved)


def test_the_power_fails_at_every_moment(disk: Path, wanted: str, shimmed: dict[str, str]) -> None:
    folder, watch, log = disk / "members", Shim(disk / "members", disk / "state"), disk / "log"
    before, own = Disk.of(folder), found(folder)
    assert copies.carried_out([(folder, watch.variables(log=log))], shimmed) == [""]
    calls, draw = with_own_inodes(recorded(log)), random.Random(3)
    assert disk_after(before, calls, Choice(frozenset(range(len(calls))))).content == Disk.of(folder).content
    assert found(folder) == wanted != own
    states = {}
    for cut in cuts(calls):
        for choice in choices(calls, cut, draw):
            after = disk_after(before, calls, choice)
            states[after.digest] = after, cut == len(calls) and choice.whole == synced(calls, cut)
    assert len(states) >= 20
    for after, is_over in states.values():
        with quick_disk() as again:
            after.write(folder, again)
            assert found(again) == wanted if is_over else found(again) in (own, wanted)
            copies.of(again).carry_out(copies.DECISION)
            assert found(again) == wanted and (again / "1" / "settled" / NAME).exists()


@pytest.mark.parametrize("lasts", [pytest.param(False, marks=pytest.mark.slow), True])
def test_any_call_fails(disk: Path, wanted: str, shimmed: dict[str, str], lasts: bool) -> None:
    folder, watch = disk / "members", Shim(disk / "members", disk / "state")
    before, own = Disk.of(folder), found(folder)
    assert copies.carried_out([(folder, watch.variables())], shimmed) == [""]
    points = [Point(number, ERRORS[number % len(ERRORS)], lasts) for number in range(1, watch.calls + 1)]
    shims = [Shim(disk / str(point.number), disk / f"state-{point.number}") for point in points]
    for shim in shims:
        shim.under.mkdir()
        before.write(folder, shim.under)
    attempts = [(shim.under, shim.variables(point)) for shim, point in zip(shims, points)]
    for shim, wrong in zip(shims, copies.carried_out(attempts, shimmed)):
        assert shim.failed
        assert not wrong or "CheckpointError" in wrong, f"{shim.failed}: {wrong}"
        assert found(shim.under) in ((own, wanted) if wrong else (wanted,)), shim.failed
        copies.of(shim.under).carry_out(copies.DECISION)
        assert found(shim.under) == wanted, shim.failed


@pytest.mark.parametrize("error", ["EIO", "ENOSYS"])
def test_a_file_system_that_copies_no_files_is_no_error(
    disk: Path, wanted: str, shimmed: dict[str, str], error: str
) -> None:
    folder, shim = disk / "members", Shim(disk / "members", disk / "state")
    point = Point(1, error, lasts=True, only="copy_file_range epoch-")
    assert copies.carried_out([(folder, shim.variables(point))], shimmed) == [""]
    assert shim.failed and found(folder) == wanted


def test_a_donor_that_is_damaged_is_told_of(disk: Path, wanted: str) -> None:
    folder, own = disk / "members", found(disk / "members")
    donor = folder / "1" / "settled" / NAME
    content = damage(donor)
    with pytest.raises(CheckpointError, match="is damaged"):
        copies.of(folder).carry_out(copies.DECISION)
    assert found(folder) == own
    donor.write_bytes(content)
    copies.of(folder).carry_out(copies.DECISION)
    assert found(folder) == wanted


def damage(path: Path) -> bytes:
    """Give a checkpoint other weights than were written; returns what was."""
    content = path.read_bytes()
    weights = read(path).parameters["0.weight"].numpy().tobytes()
    path.unlink()  # its other names keep what was written
    path.write_bytes(content.replace(weights, bytes(len(weights)), 1))
    return content


def test_a_copy_that_is_damaged_later_is_made_again(disk: Path, wanted: str) -> None:
    folder = disk / "members"
    copies.of(folder).carry_out(copies.DECISION)
    damage(folder / "0" / NAME)
    assert found(folder) is None
    assert copies.of(folder).again(copies.DECISION) == "" and found(folder) == wanted


@pytest.mark.parametrize("member", ["0", "1"])
def test_a_copy_of_which_nothing_is_kept_any_more_is_told_of(disk: Path, member: str) -> None:
    folder = disk / "members"
    copies.of(folder).carry_out(copies.DECISION)
    damage(folder / "0" / NAME)
    kept = folder / member / "settled" / NAME
    kept.unlink()
    assert f"{kept}: no such file" in copies.of(folder).again(copies.DECISION) and found(folder) is None
