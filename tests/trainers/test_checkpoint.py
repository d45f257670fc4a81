"""Checkpoint files: whole or absent, never trusted unread."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trainers.support.made_checkpoints import checkpoint
from tests.trainers.support.seals import apart, sealed, sealed_without_index
from trainers import Checkpoint, CheckpointError, file_name, latest_good, prune, read, write
from trainers.state.state_file import is_whole
from trainers.state.tree import flatten


def same(one: Checkpoint, other: Checkpoint) -> bool:
    (text, arrays), (other_text, others) = flatten(one.as_tree()), flatten(other.as_tree())
    return text == other_text and all(arrays[name].tobytes() == others[name].tobytes() for name in arrays)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for epoch, step in ((1, 0), (2, 0), (2, 7)):
        saved = checkpoint(epoch, step)
        write(tmp_path / file_name(saved), saved)
    return tmp_path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    original = checkpoint(7)
    saved = write(tmp_path / "new" / file_name(original), original)
    assert saved.path.name == "epoch-00007-step-000000.h5"
    assert saved.bytes == saved.path.stat().st_size
    assert same(read(saved.path), original)
    assert [path.name for path in saved.path.parent.iterdir()] == [saved.path.name]


def test_equal_states_have_equal_digests(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.h5", checkpoint()), write(tmp_path / "b.h5", checkpoint())
    assert one.digest == other.digest
    assert write(tmp_path / "c.h5", checkpoint(2)).digest != one.digest


def test_the_newest_is_found(folder: Path) -> None:
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, found.step, rejected) == (2, 7, [])
    assert latest_good(folder / "none") == (None, [])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_bit_gets_through(folder: Path, data: st.DataObject) -> None:
    path = folder / "epoch-00002-step-000007.h5"
    content = bytearray(write(path, checkpoint(2, 7)).path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    found, rejected = latest_good(folder)
    assert found is not None
    assert (found.epoch, found.step) == (2, 0)
    assert rejected[0].path == path


def test_a_flipped_weight_falls_back_to_the_checkpoint_before(folder: Path) -> None:
    path = folder / "epoch-00002-step-000007.h5"
    weights = checkpoint(2).parameters["0.weight"].numpy().tobytes()
    content = path.read_bytes()
    position = content.index(weights) + 1001
    path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, found.step) == (2, 0)
    assert "its bytes do not match their digest; go on from an earlier checkpoint" in str(rejected[0])


@pytest.mark.parametrize("length", [0, 100, 5000, -1])
def test_a_truncated_file_falls_back(folder: Path, length: int) -> None:
    for name in ("epoch-00002-step-000007.h5", "epoch-00002-step-000000.h5"):
        (folder / name).write_bytes((folder / name).read_bytes()[:length])
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, len(rejected)) == (1, 2)


class Lacking(Checkpoint):
    """Of a version that knew no pins."""

    def as_tree(self) -> dict[str, Any]:
        return {name: value for name, value in super().as_tree().items() if name != "pins"}


def reseal(path: Path, change: Callable[[h5py.File], None]) -> None:
    """Change the content of a checkpoint as its writer would have written it, before files had indexes."""
    path.write_bytes(apart(path.read_bytes())[0])
    with h5py.File(path, "r+") as file:
        change(file)
    path.write_bytes(sealed_without_index(path.read_bytes()))


def external_link(file: h5py.File) -> None:
    del file["structure"]
    file["structure"] = h5py.ExternalLink("/etc/other.h5", "/structure")


def external_storage(file: h5py.File) -> None:
    """A weight whose bytes are those of any file."""
    bias = file["state/parameters/0.bias"]
    del file["state/parameters/0.bias"]
    file.create_dataset("state/parameters/0.bias", bias.shape, bias.dtype, external=[("/etc/hostname", 0, 120)])


def virtual(file: h5py.File) -> None:
    bias = file["state/parameters/0.bias"]
    del file["state/parameters/0.bias"]
    layout = h5py.VirtualLayout(bias.shape, bias.dtype)
    layout[:] = h5py.VirtualSource("/etc/other.h5", "x", bias.shape)
    file.create_virtual_dataset("state/parameters/0.bias", layout)


def no_json(file: h5py.File) -> None:
    del file["structure"]
    file["structure"] = np.frombuffer(b"{", np.uint8)


@pytest.mark.parametrize("change", [external_link, external_storage, virtual])
def test_a_checkpoint_that_points_elsewhere_is_refused(folder: Path, change: Callable[[h5py.File], None]) -> None:
    path = folder / "epoch-00002-step-000007.h5"
    reseal(path, change)
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, found.step) == (2, 0)
    assert "points elsewhere, which no checkpoint does" in str(rejected[0])


@pytest.mark.parametrize("change", [no_json, lambda file: file.attrs.modify("format", 4)])
def test_sealed_content_that_cannot_be_decoded_falls_back(folder: Path, change: Callable[[h5py.File], None]) -> None:
    path = folder / "epoch-00002-step-000007.h5"
    reseal(path, change)
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, found.step) == (2, 0)
    assert [error.path for error in rejected] == [path]


def test_a_checkpoint_of_the_format_before_is_read(folder: Path) -> None:
    path = folder / "epoch-00002-step-000007.h5"
    reseal(path, lambda file: file.attrs.modify("format", 2))
    assert same(read(path), checkpoint(2, 7))
    path.write_bytes(apart((folder / "epoch-00002-step-000000.h5").read_bytes())[0])
    with pytest.raises(CheckpointError, match="do not match their digest"):
        read(path)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ('["<f4", [200, 30]', '["<f8", [200, 30]'),
        ('["<f4", [200, 30]', '["|O", [200, 30]'),
        ('["<f4", [200, 30]', '["<f4", [200, 3000000000000]'),
        ('["<f4", [200, 30]', '["<f4", [200, -30]'),
        ('["<f4", [200, 30]', '["<f4", "/"'),
        ('"structure": [', '"structure": [-1, '),
        ('"structure": [', '"structure": {}, "other": ['),
        ('"arrays": {', '"arrays": [], "other": {'),
        ("{", "["),
    ],
)
def test_an_index_that_cannot_be_falls_back(folder: Path, was: str, becomes: str) -> None:
    path = folder / "epoch-00002-step-000007.h5"
    data, index = apart(path.read_bytes())
    assert was.encode() in index
    path.write_bytes(sealed(data, index.replace(was.encode(), becomes.encode(), 1)))
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, found.step) == (2, 0)
    assert [error.path for error in rejected] == [path]
    assert not is_whole(path) or was == '["<f4", [200, 30]'


def test_others_read_with_hdf5_what_the_index_tells(folder: Path) -> None:
    path = folder / "epoch-00002-step-000007.h5"
    with h5py.File(path) as file:
        arrays = {f"/{name}": file["state"][name][()] for name in ("parameters/0.weight", "parameters/0.bias")}
        assert json.loads(bytes(file["structure"][()])) == json.loads(flatten(checkpoint(2, 7).as_tree())[0])
    wanted = flatten(checkpoint(2, 7).as_tree())[1]
    assert all(array.tobytes() == wanted[name].tobytes() for name, array in arrays.items())


def test_arrays_of_any_kind_come_back(tmp_path: Path) -> None:
    state = {
        "fields": np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8")]), "big": np.arange(3, dtype=">i2"),
        "none": np.empty((0, 3), np.float32), "one": np.array(2.5), "turned": np.arange(6).reshape(2, 3).T,
        "half": torch.ones(2, dtype=torch.bfloat16), "yes": torch.tensor(True), "complex": np.array([1j]),
    }  # fmt: skip
    back = read(write(tmp_path / "x.h5", replace(checkpoint(), task_state=state)).path).task_state
    for name, value in state.items():
        assert back[name].dtype == value.dtype and back[name].tolist() == value.tolist()


@pytest.mark.parametrize(
    "changes",
    [{"history": None}, {"epoch": "2"}, {"layout": {}}, {"optimizer": {}}, {"workers": []}, {"workers": [{"rank": 0}]}],
)
def test_sealed_content_of_another_shape_falls_back(folder: Path, changes: dict[str, Any]) -> None:
    write(folder / "epoch-00002-step-000007.h5", replace(checkpoint(2, 7), **changes))
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, found.step, len(rejected)) == (2, 0, 1)


def test_a_sealed_checkpoint_without_a_field_falls_back(folder: Path) -> None:
    whole = checkpoint(2, 7)
    write(folder / file_name(whole), Lacking(**whole.as_tree()))
    found, rejected = latest_good(folder)
    assert found is not None and (found.epoch, found.step) == (2, 0)
    assert "pins" in str(rejected[0])


def test_missing_and_foreign_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"x\.h5: no such file; give the path"):
        read(tmp_path / "x.h5")
    (tmp_path / "x.h5").write_text("not HDF5")
    with pytest.raises(CheckpointError, match="is damaged or no checkpoint"):
        read(tmp_path / "x.h5")


def test_state_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    odd = replace(checkpoint(), optimizer={"state": {0: {"hook": print}}})
    with pytest.raises(CheckpointError, match=r"/optimizer/state/0/hook holds a builtin_function_or_method"):
        write(tmp_path / "x.h5", odd)
    assert list(tmp_path.iterdir()) == []


def test_pruning_keeps_the_newest(folder: Path) -> None:
    (folder / ".epoch-00002-step-000009.h5.partial").write_bytes(b"left by a killed writer")
    (folder / "notes.txt").write_text("stays")
    prune(folder, keep=2)
    assert sorted(path.name for path in folder.iterdir()) == [
        "epoch-00002-step-000000.h5",
        "epoch-00002-step-000007.h5",
        "notes.txt",
    ]
    with pytest.raises(ValueError, match="keep is 0"):
        prune(folder, keep=0)


def test_an_unwritable_folder_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written: .*; make room or choose another folder"):
        write(tmp_path / "file" / "x.h5", checkpoint())


def test_a_full_disk_leaves_the_checkpoint_before(programs: Path, tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=512k none "{tmp_path}" && exec "$@"'
    private = ["unshare", "-m", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*private, mount, "sh", "true"], capture_output=True).returncode
    ):
        pytest.skip("a small file system needs unshare and the right to mount; run the tests as root")
    command = [*private, mount, "sh", sys.executable, str(programs / "full_disk.py"), str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=root, env={"PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert "epoch-00002-step-000000.h5: cannot be written: No space left on device" in seen["error"]
    assert (seen["epoch"], seen["rejected"], seen["files"]) == (1, 0, ["epoch-00001-step-000000.h5"])
