"""How files are opened and written in folders where others may have been first."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from preprocess.files import memory, reading, writing
from tests.trust.support.masks import umask

OTHER = 12345  # a user whom nobody is


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.close()


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


NO_FILES: list[Callable[[Path], None]] = [pipe, bound_socket, device, folder]


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None], linked: bool) -> None:
    make(tmp_path / "x")
    path = tmp_path / "x"
    if linked:
        path = tmp_path / "link"
        path.symlink_to("x")
    for read in (reading.open_file, reading.read_json, reading.check_is_file):
        with pytest.raises(reading.NotAFile, match="not a regular file") as caught:
            read(path)
        assert caught.value.filename == str(path)


def test_a_file_is_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"a": 1}')
    (tmp_path / "link").symlink_to("x")
    assert reading.read_json(tmp_path / "link") == {"a": 1}
    assert reading.read_text("/proc/self/comm"), "files that do not know their size are read"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", 1 << 40)
    with pytest.raises(reading.TooLarge, match="1,099,511,627,776 bytes"):
        reading.read_bytes(tmp_path / "x", 1 << 20)
    with pytest.raises(reading.TooLarge):
        reading.read_bytes("/proc/self/maps", 10)


def test_deep_json_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="x is nested too deep"):
        reading.read_json(tmp_path / "x")


@pytest.mark.parametrize("mask, wanted", [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_modes_are_the_umask_s(tmp_path: Path, mask: int, wanted: int) -> None:
    with umask(mask):
        writing.write_whole(tmp_path / "whole", "x")
        writing.open_to_append(tmp_path / "appended").close()
        writing.open_in_place(tmp_path / "kept").close()
        with writing.whole_file(tmp_path / "script", text=True, mode=0o777) as file:
            file.write("#!")
    assert {mode(tmp_path / name) for name in ("whole", "appended", "kept")} == {wanted}
    assert mode(tmp_path / "script") == 0o777 & ~mask


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "x").symlink_to("victim")
    writing.write_whole(tmp_path / "x", "mine")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "x").read_text() == "mine" and not (tmp_path / "x").is_symlink()


@pytest.mark.parametrize("open_it", [writing.open_to_append, writing.open_in_place])
def test_a_link_is_not_appended_to(tmp_path: Path, open_it: Callable[[Path], object]) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "x").symlink_to("victim")
    with pytest.raises(writing.LaidByOthers, match="is a link"):
        open_it(tmp_path / "x")
    (tmp_path / "dangling").symlink_to("nobody")
    with pytest.raises(writing.LaidByOthers, match="is a link"):
        open_it(tmp_path / "dangling")
    os.link(tmp_path / "victim", tmp_path / "hard")
    with pytest.raises(writing.LaidByOthers, match="2 names"):
        open_it(tmp_path / "hard")
    assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "nobody").exists()


@pytest.mark.parametrize("make", NO_FILES)
@pytest.mark.parametrize("open_it", [writing.open_to_append, writing.open_in_place])
def test_what_is_no_file_is_not_appended_to(
    tmp_path: Path, make: Callable[[Path], None], open_it: Callable[[Path], object]
) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError):
        open_it(tmp_path / "x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_a_strangers_file_is_appended_to_only_in_a_groups_folder(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    os.chown(tmp_path / "x", OTHER, OTHER)
    tmp_path.chmod(0o755)
    with pytest.raises(writing.LaidByOthers, match=f"belongs to user {OTHER}"):
        writing.open_to_append(tmp_path / "x")
    tmp_path.chmod(0o1777)
    with pytest.raises(writing.LaidByOthers, match=f"belongs to user {OTHER}"):
        writing.open_to_append(tmp_path / "x")
    tmp_path.chmod(0o2770)
    writing.open_to_append(tmp_path / "x").close()
    tmp_path.chmod(0o755)
    os.chown(tmp_path, OTHER, OTHER)
    writing.open_to_append(tmp_path / "x").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make links of other users")
def test_links_that_others_laid_to_what_is_not_theirs_are_not_followed(tmp_path: Path) -> None:
    victims, run = tmp_path / "victims", tmp_path / "run"
    victims.mkdir()
    run.mkdir()
    (run / "checkpoints").symlink_to(victims)
    writing.write_whole(run / "checkpoints" / "own", "a link of one's own is followed")
    os.lchown(run / "checkpoints", OTHER, OTHER)
    for write in (writing.write_whole, lambda path, _: writing.open_to_append(path)):
        with pytest.raises(writing.LaidByOthers, match="name that"):
            write(run / "checkpoints" / "x", "x")
    with pytest.raises(writing.LaidByOthers):
        writing.make_folder(run / "checkpoints" / "deeper" / "still")
    os.chown(victims, OTHER, OTHER)
    writing.write_whole(run / "checkpoints" / "x", "theirs leads to theirs")
    assert sorted(path.name for path in victims.iterdir()) == ["own", "x"]


def test_a_failed_block_leaves_the_earlier_file_and_nothing_else(tmp_path: Path) -> None:
    writing.write_whole(tmp_path / "x", "before")
    with pytest.raises(ZeroDivisionError), writing.whole_file(tmp_path / "x") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "before"


def test_a_name_that_is_taken_can_be_respected(tmp_path: Path) -> None:
    with writing.whole_file(tmp_path / "x", replace=False) as file:
        file.write(b"first")
    (tmp_path / "dangling").symlink_to("nobody")
    for name in ("x", "dangling"):
        with pytest.raises(FileExistsError), writing.whole_file(tmp_path / name, replace=False) as file:
            file.write(b"second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "x"]
    assert (tmp_path / "x").read_bytes() == b"first"


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        writing.write_whole(tmp_path / "none" / "x", "x")
    assert caught.value.filename == str(tmp_path / "none" / "x")
    with pytest.raises(OSError, match="No space left") as full, writing.whole_file(tmp_path / "x") as file:
        os.dup2(os.open("/dev/full", os.O_RDWR), file.fileno())
        file.write(b"x" * 10)
    assert full.value.filename == str(tmp_path / "x") and not list(tmp_path.iterdir())


def test_claims_are_held_against_the_file_and_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(memory.READ_MEMORY, raising=False)
    monkeypatch.setattr(memory, "free_memory", lambda: 8 << 30)
    memory.check_claim("f", memory.SMALL_BYTES, stored=0)
    memory.check_claim("f", 1 << 30, stored=1 << 24)
    with pytest.raises(memory.NeedsTooMuchMemory, match=r"inputs takes 1.0 GB of memory and has 1.0 MB.*=1G"):
        memory.check_claim("f", 1 << 30, "inputs", stored=1 << 20)
    with pytest.raises(memory.NeedsTooMuchMemory, match=r"takes 3.0 GB.*a quarter of the 8.0 GB"):
        memory.check_claim("f", 3 << 30)
    monkeypatch.setenv(memory.READ_MEMORY, "3g")
    memory.check_claim("f", 3 << 30, stored=1)
    with pytest.raises(memory.NeedsTooMuchMemory, match=r"takes 4.0 GB.*allows 3.0 GB"):
        memory.check_claim("f", 4 << 30)
    monkeypatch.setenv(memory.READ_MEMORY, "much")
    with pytest.raises(ValueError, match="such as 512M or 8G"):
        memory.check_claim("f", 1)


@pytest.mark.parametrize(
    "text, size", [("512", 512), ("4K", 4096), ("1.5 GB", 3 << 29), ("2TiB", 2 << 40), ("8m", 8 << 20)]
)
def test_bytes_are_written_as_people_do(text: str, size: int) -> None:
    assert memory.bytes_of(text) == size
