"""A job that goes on with another one's weights: its file is the other's, with its own written into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from tests.trainers.support.members import trained
from tests.trainers.support.seals import apart, sealed, sealed_without_index
from trainers import Checkpoint, CheckpointError, read, write
from trainers.state.kept_checkpoints import inherit, inherited
from trainers.state.state_file import is_whole
from trainers.state.tree import flatten

VALUES = {"lr": 0.25, "betas": [0.5, 0.75]}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return write(tmp_path / "own.h5", trained(0)).path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return write(tmp_path / "other.h5", trained(1)).path


def assert_same(one: Checkpoint, two: Checkpoint) -> None:
    (text, arrays), (other_text, others) = flatten(one.as_tree()), flatten(two.as_tree())
    assert text == other_text and arrays.keys() == others.keys()
    assert all(arrays[name].tobytes() == others[name].tobytes() for name in arrays)


def as_before_indexes(path: Path) -> None:
    """Let a file be one of the format before."""
    path.write_bytes(apart(path.read_bytes())[0])
    with h5py.File(path, "r+") as file:
        file.attrs.modify("format", 2)
    path.write_bytes(sealed_without_index(path.read_bytes()))


def test_weights_and_moments_are_the_others_and_all_else_is_its_own(tmp_path: Path, own: Path, other: Path) -> None:
    made, mine, theirs = read(inherit(tmp_path / "made.h5", own, other, VALUES).path), read(own), read(other)
    group = made.optimizer["param_groups"][0]
    assert (group["lr"], group["betas"]) == (0.25, (0.5, 0.75))
    for name, value in theirs.parameters.items():
        assert torch.equal(made.parameters[name], value) and not torch.equal(mine.parameters[name], value)
    moments = theirs.optimizer["state"][0]["exp_avg"]
    assert torch.equal(made.optimizer["state"][0]["exp_avg"], moments) and moments.abs().sum() > 0
    for one, two, its in zip(made.workers, mine.workers, theirs.workers):
        assert torch.equal(one["buffers"]["1.running_mean"], its["buffers"]["1.running_mean"])
        assert_same(
            replace(mine, workers=[{"random": one["random"]}]), replace(mine, workers=[{"random": two["random"]}])
        )
    assert (made.job, made.seed, made.history) == ("member-0", 0, mine.history)


def test_the_file_holds_what_a_new_one_would(tmp_path: Path, own: Path, other: Path) -> None:
    copied = inherit(tmp_path / "made.h5", own, other, VALUES)
    wanted = inherited(read(own), read(other), VALUES)
    written = write(tmp_path / "wanted.h5", wanted)
    assert_same(read(copied.path), wanted)
    assert copied.digest == written.digest and copied.bytes == copied.path.stat().st_size and is_whole(copied.path)
    with h5py.File(copied.path) as one, h5py.File(written.path) as two:
        assert dict(one.attrs) == dict(two.attrs) and bytes(one["structure"][()]) == bytes(two["structure"][()])
        names: list[str] = []
        two.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert all(np.array_equal(one[name][()], two[name][()]) for name in names)


def test_it_can_be_gone_on_from_again(tmp_path: Path, own: Path, other: Path) -> None:
    """A file that was copied is copied, and the job's own state may be larger or smaller than the other's."""
    more: dict[str, Any] = {"schedule": {"rates": torch.arange(9.0)}, "history": [{"loss": 0.5}] * 40}
    third = write(tmp_path / "third.h5", replace(trained(2), **more)).path
    second = inherit(tmp_path / "second.h5", third, inherit(tmp_path / "first.h5", own, other, VALUES).path, {}).path
    assert_same(read(second), inherited(read(third), inherited(read(own), read(other), VALUES), {}))
    last = inherit(tmp_path / "last.h5", own, second, VALUES)
    assert_same(read(last.path), inherited(read(own), read(second), VALUES))
    assert last.digest == write(tmp_path / "wanted.h5", inherited(read(own), read(other), VALUES)).digest


@pytest.mark.parametrize("old", [["own"], ["other"], ["own", "other"]])
def test_files_of_the_format_before_are_taken_too(tmp_path: Path, own: Path, other: Path, old: list[str]) -> None:
    wanted = inherited(read(own), read(other), VALUES)
    for name in old:
        as_before_indexes(tmp_path / f"{name}.h5")
    assert_same(read(inherit(tmp_path / "made.h5", own, other, VALUES).path), wanted)


def flip(path: Path, what: bytes) -> None:
    content = path.read_bytes()
    place = content.index(what)
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


def test_a_damaged_file_is_not_gone_on_from(tmp_path: Path, own: Path, other: Path) -> None:
    before = read(own), read(other)
    flip(other, before[1].parameters["0.weight"].numpy().tobytes())
    with pytest.raises(CheckpointError, match=r"other\.h5: is damaged"):
        inherit(tmp_path / "made.h5", own, other, VALUES)
    write(other, before[1])
    flip(own, before[0].workers[1]["random"]["torch_cpu"].numpy().tobytes())
    with pytest.raises(CheckpointError, match=r"own\.h5: is damaged"):
        inherit(tmp_path / "made.h5", own, other, VALUES)
    assert not (tmp_path / "made.h5").exists()
    write(own, before[0])
    flip(own, before[0].parameters["0.weight"].numpy().tobytes())  # nothing of this goes into the copy
    assert_same(read(inherit(tmp_path / "made.h5", own, other, VALUES).path), inherited(*before, VALUES))


def test_a_member_of_another_structure_is_refused(tmp_path: Path, own: Path) -> None:
    for name, odd in (("wider", trained(3, width=17)), ("more", trained(3, virtual_workers=3))):
        path = write(tmp_path / f"{name}.h5", odd).path
        with pytest.raises(CheckpointError, match="cannot go on from member-3"):
            inherit(tmp_path / "made.h5", own, path, VALUES)
    with pytest.raises(CheckpointError, match="its optimizer has no momentum"):
        inherit(tmp_path / "made.h5", own, own, {"momentum": 0.5})
    with pytest.raises(CheckpointError, match="no such file"):
        inherit(tmp_path / "made.h5", own, tmp_path / "none.h5", VALUES)
    assert not (tmp_path / "made.h5").exists()


def test_the_index_is_sealed(other: Path) -> None:
    data, index = apart(other.read_bytes())
    other.write_bytes(sealed(data, index))
    assert is_whole(other)
    other.write_bytes(sealed(data, index.replace(b'"<f4"', b'"<i4"', 1)))
    assert is_whole(other)  # as somebody sealed it so
    other.write_bytes(sealed(data, index).replace(b'"<f4"', b'"<i4"', 1))
    assert not is_whole(other)
