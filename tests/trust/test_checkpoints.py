"""Checkpoints that somebody made to be read: sealed as any is, as anybody can compute a seal."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil
import pytest

from tests.trainers.support.made_checkpoints import checkpoint
from tests.trainers.support.members import trained
from tests.trainers.support.seals import apart, sealed, sealed_without_index
from trainers import CheckpointError, file_name, latest_good, newest_file, read, write
from trainers.state.kept_checkpoints import inherit, is_kept, keep_best, keep_rollback
from trainers.state.state_file import is_whole, read_outline
from trainers.state.tree import flatten

SECONDS, MEGABYTES = 20, 1000
OF_PYTHON = 260  # what a process has that has read nothing yet
SECRET = b"root:x:0:0:root:/root:/bin/bash\n" * 8
BIAS = "state/parameters/0.bias"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound checkpoint; beside its folder lies a file that is nobody's business."""
    (tmp_path / "secret").write_bytes(SECRET)
    return write(tmp_path / "job" / file_name(checkpoint()), checkpoint()).path


# Files with an index.


def seal_again(path: Path, data: bytes, told: dict[str, Any]) -> None:
    """Write HDF5 data with an index and a seal that are right, whatever the index says."""
    digest, at = hashlib.blake2b(digest_size=32), 0
    for kind, shape, offset, _ in sorted(told["arrays"].values(), key=lambda place: place[2]):
        size = int(np.prod(shape)) * int("".join(filter(str.isdigit, kind)))
        if size:
            digest.update(data[at:offset])
            at = offset + size
    digest.update(data[at:])
    path.write_bytes(sealed(data, json.dumps({**told, "others": digest.hexdigest()}).encode()))


def with_array_elsewhere(path: Path, target: str) -> None:
    """One array lies in another file, and the index says that only HDF5 knows its type."""
    data, index = apart(path.read_bytes())
    told = json.loads(index)
    body = path.with_suffix(".body")
    body.write_bytes(data)
    with h5py.File(body, "r+") as file:
        del file[BIAS]
        file.create_dataset(BIAS, (64,), dtype="u1", external=[(target, 0, 64)])
    data = body.read_bytes()
    body.unlink()
    told["arrays"]["/parameters/0.bias"] = ["|V1", [1], len(data), hashlib.blake2b(b"V", digest_size=32).hexdigest()]
    seal_again(path, data + b"V", told)


@pytest.mark.parametrize("target", ["secret", "pipe", "/dev/zero"])
def test_an_array_in_another_file_is_refused(path: Path, target: str) -> None:
    os.mkfifo(path.parents[1] / "pipe")
    with_array_elsewhere(path, str(path.parents[1] / target))
    assert "points elsewhere, which no checkpoint does" in refusal(path)


def test_who_goes_on_from_it_writes_into_no_other_file(tmp_path: Path) -> None:
    """Members of a population copy a file and write their own arrays into the copy."""
    own, other = (write(tmp_path / f"{seed}.h5", trained(seed)).path for seed in range(2))
    with h5py.File(tmp_path / "victim.h5", "w") as file:
        file["0/random/numpy/0"] = np.zeros(3)
    before = (tmp_path / "victim.h5").read_bytes()
    data, index = apart(other.read_bytes())
    other.write_bytes(data)
    with h5py.File(other, "r+") as file:
        file.move("state/workers", "kept")
        file["state/workers"] = h5py.ExternalLink("victim.h5", "/")
    seal_again(other, other.read_bytes(), json.loads(index))
    with pytest.raises(CheckpointError, match="/state/workers points elsewhere"):
        inherit(tmp_path / "made.h5", own, other, {})
    assert (tmp_path / "victim.h5").read_bytes() == before and not (tmp_path / "made.h5").exists()


def changed_index(change: Callable[[dict[str, Any], str, int], None]) -> Callable[[Path], None]:
    """Make what changes a file's index: it gets what the index tells, the name of an array, and the data's size."""

    def make(path: Path) -> None:
        data, index = apart(path.read_bytes())
        told = json.loads(index)
        change(told, "/parameters/0.weight", len(data))
        path.write_bytes(sealed(data, json.dumps(told).encode()))

    return make


def place(told: dict[str, Any], name: str, **changes: Any) -> None:
    names = ("dtype", "shape", "offset", "digest")
    told["arrays"][name] = list({**dict(zip(names, told["arrays"][name])), **changes}.values())


def with_fields(told: dict[str, Any], name: str, fields: Any) -> None:
    place(told, name, dtype="|V8", shape=[3000])
    told["fields"] = {name: fields}


def nested(levels: int) -> Any:
    found: Any = []
    for _ in range(levels):
        found = [found]
    return found


INDEXES: dict[str, Callable[[dict[str, Any], str, int], None]] = {
    "objects": lambda told, name, size: place(told, name, dtype="|O"),
    "records of objects": lambda told, name, size: place(told, name, dtype="f4,O"),
    "terabytes": lambda told, name, size: place(told, name, shape=[1 << 40]),
    "terabytes of nothing": lambda told, name, size: place(told, name, shape=[0, 1 << 62]),
    "an item of a terabyte": lambda told, name, size: place(told, name, dtype="|V1099511627776"),
    "no count": lambda told, name, size: place(told, name, shape=[200.0, 30]),
    "a truth": lambda told, name, size: place(told, name, shape=[True, 200, 30]),
    "below zero": lambda told, name, size: place(told, name, offset=-1),
    "behind the end": lambda told, name, size: place(told, name, offset=size),
    "many dimensions": lambda told, name, size: place(told, name, shape=[1] * 100_000),
    "two in one place": lambda told, name, size: told["arrays"].update({"/copy": told["arrays"][name]}),
    "a digest of nothing": lambda told, name, size: place(told, name, digest=""),
    "a tree behind the end": lambda told, name, size: told.update(structure=[size, 100]),
    "a tree of a terabyte": lambda told, name, size: told.update(structure=[0, 1 << 40]),
    "fields of objects": lambda told, name, size: with_fields(told, name, [["a", "|O"]]),
    "fields of another size": lambda told, name, size: with_fields(told, name, [["a", "<f8", [1 << 20]]]),
    "fields within fields": lambda told, name, size: with_fields(told, name, nested(300)),
}


@pytest.mark.parametrize("change", INDEXES.values(), ids=INDEXES.keys())
def test_an_index_that_claims_what_is_not_there_is_refused(path: Path, change: Any) -> None:
    changed_index(change)(path)
    refusal(path)


def with_tree(path: Path, tree: bytes) -> None:
    """A checkpoint whose tree is this text."""
    data, index = apart(path.read_bytes())
    told = json.loads(index)
    told["structure"] = [len(data), len(tree)]
    seal_again(path, data + tree, told)


@pytest.mark.parametrize(
    ("tree", "wrong"),
    [
        (b"[" * 500_000, "is nested too deep"),
        (b"[" * 300 + b"1" + b"]" * 300, "nested in more than 100 levels"),
        (b"[" + b"[]," * 5_000_000 + b"0]", "more than 1,048,576 lists and mappings"),
        (b'"' + b"x" * (33 << 20) + b'"', "33,554,432 at most"),
        (b'{"tensor": "/parameters/0.bias", "dtype": "load"}', "torch has no type load"),
        (b"9" * 5000, "is damaged or no checkpoint"),
        (b'{"dict": [["seed", 1]]}', "is damaged or no checkpoint"),
    ],
    ids=["deep", "rather deep", "many lists", "long", "a function", "a long number", "lacking"],
)
def test_a_tree_that_nobody_writes_is_refused(path: Path, tree: bytes, wrong: str) -> None:
    with_tree(path, tree)
    assert wrong in refusal(path)


def test_an_index_longer_than_any_is_not_read(path: Path) -> None:
    data, _ = apart(path.read_bytes())
    path.write_bytes(sealed(data, b" " * (33 << 20)))
    assert "its index has 34,603,008 bytes" in refusal(path)
    content = path.read_bytes()
    for length in (b"f" * 16, b"-000000000000001", b"0" * 16):
        path.write_bytes(content[:-81] + length + content[-65:])
        assert "damaged" in refusal(path)


def test_a_file_of_holes_is_refused_before_it_is_read(path: Path) -> None:
    """A terabyte of zeros that the disk does not hold: digests of it would take hours."""
    data, index = apart(path.read_bytes())
    behind = sealed(data, index)[len(data) :]
    with open(path, "r+b") as file:
        file.truncate(1 << 40)
        file.seek(1 << 40)
        file.write(behind)
    assert "of memory and has" in refusal(path) and "FLEET_READ_MEMORY=" in refusal(path)
    with pytest.raises(OSError, match="FLEET_READ_MEMORY="):
        is_whole(path)


# Files of older versions, which HDF5 reads.


def old(path: Path, change: Callable[[h5py.File], None], kind: int = 2) -> None:
    """Make it a file of an older version, whose HDF5 data are changed."""
    path.write_bytes(apart(path.read_bytes())[0])
    with h5py.File(path, "r+", libver="latest") as file:
        file.attrs["format"] = kind
        change(file)
    if kind == 2:
        path.write_bytes(sealed_without_index(path.read_bytes()))


def instead(name: str, **more: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **more)

    return change


def external(target: str) -> Callable[[h5py.File], None]:
    return instead(BIAS, shape=(200,), dtype="u1", external=[(target, 0, 200)])


def virtual(file: h5py.File) -> None:
    del file[BIAS]
    layout = h5py.VirtualLayout((200,), "u1")
    layout[:] = h5py.VirtualSource("secret", "x", (200,))
    file.create_virtual_dataset(BIAS, layout)


def link(made: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[BIAS]
        file[BIAS] = made

    return change


def linked_group(file: h5py.File) -> None:
    del file["state"]
    file["state"] = h5py.ExternalLink("secret", "/")


def same_group_within_itself(file: h5py.File) -> None:
    for name in ("a", "b"):
        file[f"state/{name}"] = file["state"]


def many_names(file: h5py.File) -> None:
    for each in range(1000):
        file[f"state/{each}"] = file["state/parameters/0.weight"]


def deep(file: h5py.File) -> None:
    group = file["state"]
    for _ in range(3000):
        group = group.create_group("a")


def addresses(file: h5py.File) -> None:
    instead(BIAS, shape=(3,), dtype=h5py.string_dtype())(file)


def references(file: h5py.File) -> None:
    instead(BIAS, shape=(3,), dtype=h5py.ref_dtype)(file)


def named_type(file: h5py.File) -> None:
    file["state/type"] = np.dtype("f4")


OLD: dict[str, Callable[[h5py.File], None]] = {
    "another file's bytes": external("secret"),
    "a device's bytes": external("/dev/zero"),
    "virtual": virtual,
    "a soft link": link(h5py.SoftLink("/state/parameters/0.weight")),
    "an external link": link(h5py.ExternalLink("secret", "/x")),
    "a group elsewhere": linked_group,
    "a group within itself": same_group_within_itself,
    "many names": many_names,
    "deep": deep,
    "words": addresses,
    "references": references,
    "a type": named_type,
    "packed": instead(BIAS, data=np.zeros(1 << 20), chunks=(1 << 20,), compression="gzip"),
    "in pieces": instead(BIAS, shape=(1 << 40,), dtype="u1", chunks=(1 << 30,)),
    "unallocated": instead(BIAS, shape=(2_400_000_000,), dtype="u1"),
    "no space": instead(BIAS, data=h5py.Empty("f4")),
    "a tree unallocated": instead("structure", shape=(2_400_000_000,), dtype="u1"),
    "a tree of words": instead("structure", data="{}"),
    "a format of many": lambda file: file.attrs.create("format", np.arange(7000)),
    "a format of words": lambda file: file.attrs.create("format", "2"),
}


@pytest.mark.parametrize("change", OLD.values(), ids=OLD.keys())
@pytest.mark.parametrize("kind", [1, 2])
def test_an_older_file_that_is_none_is_refused(path: Path, change: Callable[[h5py.File], None], kind: int) -> None:
    old(path, change, kind)
    refusal(path)
    with pytest.raises((OSError, ValueError, KeyError, RuntimeError)):
        read_outline(path)


def test_an_older_file_with_a_pipe_s_bytes_does_not_wait(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")
    old(path, external(str(path.parent / "pipe")))
    assert "points elsewhere" in refusal(path)


def test_sound_files_of_all_versions_are_read(path: Path) -> None:
    wanted, arrays = flatten(checkpoint().as_tree())
    for kind in (3, 2):
        if kind == 2:
            old(path, lambda file: None)
        text, found = flatten(read(path).as_tree())
        assert text == wanted and all(arrays[name].tobytes() == found[name].tobytes() for name in arrays)
        assert read_outline(path).arrays.keys() == arrays.keys()


def test_fields_that_an_older_index_does_not_tell_are_read(tmp_path: Path) -> None:
    """HDF5 knows them; of the rest of such an array it is not asked."""
    fields = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i4"), ("b", "<f8", (1,))])
    path = write(tmp_path / "x.h5", replace(checkpoint(), task_state={"fields": fields})).path
    data, index = apart(path.read_bytes())
    told = json.loads(index)
    assert told.pop("fields") == {"/task_state/fields": [["a", "<i4"], ["b", "<f8", [1]]]}
    path.write_bytes(sealed(data, json.dumps(told).encode()))
    found = read(path).task_state["fields"]
    assert found.dtype == fields.dtype and found.tobytes() == fields.tobytes()
    told["arrays"]["/task_state/fields"][1] = [1]
    seal_again(path, data, told)
    assert "lies elsewhere than its index says" in refusal(path)


# What is no file.


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    made = socket.socket(socket.AF_UNIX)
    made.bind(f"/proc/self/fd/{folder}/{path.name}")  # names of sockets are short
    made.close()
    os.close(folder)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def linked_pipe(path: Path) -> None:
    os.mkfifo(path.parent / "pipe")
    path.symlink_to("pipe")


@pytest.mark.parametrize("make", [pipe, bound_socket, device, linked_pipe, Path.mkdir])
def test_what_is_no_file_is_no_checkpoint(path: Path, make: Callable[[Path], None]) -> None:
    for each in (path.with_name("epoch-00009-step-000000.h5"), path.parent / "best" / "epoch-00009-step-000000.h5"):
        each.parent.mkdir(exist_ok=True)
        make(each)
    newest = newest_file(path.parent)
    assert newest is not None and newest.name == "epoch-00009-step-000000.h5"
    assert "not a regular file" in refusal(newest)
    found, rejected = latest_good(path.parent)
    assert found is not None and [error.path for error in rejected] == [newest]
    with pytest.raises(CheckpointError, match="not a regular file"):
        keep_best(path.parent, 9)
    with pytest.raises(CheckpointError, match="not a regular file"):
        keep_rollback(path.parent, 9)
    assert not is_kept(path.parent, 9)


# Names that somebody laid.


def test_no_checkpoint_is_written_through_a_link(path: Path) -> None:
    """Not through those that were the names of files that are not complete yet, and not through its own."""
    secret = path.parents[1] / "secret"
    for folder in (path.parent, path.parent / "best", path.parent / "settled"):
        folder.mkdir(exist_ok=True)
        for name in ("epoch-00001-step-000000.h5", "epoch-00002-step-000000.h5"):
            (folder / f".{name}.partial").symlink_to(secret)
            if folder / name != path:
                (folder / name).symlink_to(secret)
    saved = checkpoint(2)
    written = write(path.parent / file_name(saved), saved).path
    keep_best(path.parent, 2)
    keep_rollback(path.parent, 2)
    assert secret.read_bytes() == SECRET
    for folder in (path.parent, path.parent / "best", path.parent / "settled"):
        assert not (folder / written.name).is_symlink() and read(folder / written.name).epoch == 2


def test_a_linked_checkpoint_is_kept_as_a_file_of_its_own(path: Path) -> None:
    """Here the run's own folder links to where people moved a checkpoint."""
    moved = path.parents[1] / "moved.h5"
    path.rename(moved)
    path.symlink_to(moved)
    keep_best(path.parent, checkpoint().epoch)
    kept = path.parent / "best" / path.name
    assert not kept.is_symlink() and kept.read_bytes() == moved.read_bytes() and moved.stat().st_nlink == 1


def refusal(path: Path) -> str:
    """What a reader says of a file, in a process that may take so much time and memory and no more."""
    reading, writing = os.pipe()
    here = psutil.Process().memory_info().rss >> 20  # of which the child's pages are
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            read(path)
            said = "it was read"
        except CheckpointError as error:
            said = str(error)
        except BaseException as error:
            said = f"raised {error!r}"
        os.write(writing, said.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    _, status, used = os.wait4(child, 0)
    assert status == 0, f"it ended by signal {os.WTERMSIG(status)}"
    assert said.startswith(f"{path}: "), said
    taken = (used.ru_maxrss >> 10) - here
    assert taken < MEGABYTES - OF_PYTHON, f"it took {taken} MB more"
    assert SECRET.decode()[:20] not in said
    return said
