"""Write files in folders where others may have been first: nothing that somebody laid there is written through.

A whole file is made under a random name in the same folder, which must be new, and renamed when it is complete and on
the disk. What is appended to, or written in place, is opened without following a link, and must be a regular file with
no other name. Modes and access lists are what the user's umask and the folder say.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from preprocess.files.reading import NotAFile, check_is_file, open_file

PARTIAL = ".partial"
"""How the names of files end that are not complete yet; they begin with a dot and the file's own name."""
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LaidByOthers(OSError):
    """What bears the name of a file that is to be written was laid there by somebody; `strerror` says what it is."""

    def __init__(self, path: str | os.PathLike[str], text: str) -> None:
        super().__init__(errno.EPERM, text, os.fspath(path))


@contextmanager
def whole_file(
    path: str | os.PathLike[str], text: bool = False, mode: int = 0o666, replace: bool = True, errors: str = "strict"
) -> Iterator[IO[Any]]:
    """Write a file that is complete and on the disk, or not there: an earlier one stays until the block has ended.

    Args:
        path: its name; that of a link is given to the new file, and what the link leads to is left alone.
        text: whether the block writes text (UTF-8, lines as given), else bytes; the file can be read, too.
        mode: what umask takes bits from.
        replace: an earlier file of that name goes; else FileExistsError.
        errors: what becomes of text that is no UTF-8.

    Yields:
        the open file.

    Raises:
        OSError: it cannot be written; names `path`.
    """
    path = Path(path)
    partial = partial_name(path)
    with naming(path, partial):
        descriptor = new_file(partial, mode)
    try:
        with naming(path, partial):
            with _opened(descriptor, text, errors) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            put_in_place(partial, path, replace)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what counts
            os.unlink(partial)
        raise


def _opened(descriptor: int, text: bool, errors: str) -> IO[Any]:
    if text:
        return open(descriptor, "w+", encoding="utf-8", errors=errors, newline="")
    return open(descriptor, "w+b")


def partial_name(path: Path) -> Path:
    """Return a name in the same folder that nobody can have known: for a file that is not complete yet."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def new_file(path: str | os.PathLike[str], mode: int = 0o666) -> int:
    """Return a descriptor that reads and writes a file that was not there. FileExistsError where something is."""
    refuse_laid_links(Path(path).parent)
    return os.open(path, _NEW, mode)


def put_in_place(partial: Path, path: Path, replace: bool = True) -> None:
    """Give a complete file its name, and make that last. FileExistsError: it is taken, where `replace` is False."""
    if replace:
        os.replace(partial, path)
    else:
        os.link(partial, path, follow_symlinks=False)
        os.unlink(partial)
    sync_folder(path.parent)


def name_again(path: Path, other: Path) -> None:
    """Give a file a further name in place of what bears that; a copy where the file system knows no further names.

    What is linked is copied, too, so that the other name leads to a file of its own. It is on the disk when this
    returns.

    Raises:
        NotAFile: `path` is none.
        OSError: it is not there, or cannot be named or copied.
    """
    check_is_file(path)
    refuse_laid_links(other.parent)
    partial = partial_name(other)
    try:
        with naming(other, partial):
            if path.is_symlink() or not _linked(path, partial):
                _copy(path, partial)
            put_in_place(partial, other)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def _linked(path: Path, name: Path) -> bool:
    """Whether the file system knows further names, and gave this one."""
    try:
        os.link(path, name, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    return True


def _copy(path: Path, name: Path) -> None:
    with open_file(path) as source, os.fdopen(new_file(name), "wb") as copied:
        shutil.copyfileobj(source, copied, 1 << 20)
        copied.flush()
        os.fsync(copied.fileno())


def write_whole(path: str | os.PathLike[str], text: str, mode: int = 0o666) -> None:
    """Write one text as `whole_file` does; what is no UTF-8 becomes a question mark."""
    write_parts(path, (text,), mode)


def write_parts(path: str | os.PathLike[str], parts: Iterable[str], mode: int = 0o666) -> None:
    """Write texts one after another as `whole_file` does; what is no UTF-8 becomes a question mark."""
    with whole_file(path, text=True, mode=mode, errors="replace") as file:
        file.writelines(parts)


def leave_note(path: str | os.PathLike[str], text: str = "", mode: int = 0o666, replace: bool = True) -> None:
    """Write a short text whole, as `whole_file` does, but without waiting for the disk: for processes that live now."""
    path = Path(path)
    partial = partial_name(path)
    with naming(path, partial):
        descriptor = new_file(partial, mode)
        try:
            with _opened(descriptor, True, "replace") as file:
                file.write(text)
            if replace:
                os.replace(partial, path)
            else:
                os.link(partial, path, follow_symlinks=False)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(partial)


def open_to_append(path: str | os.PathLike[str], mode: int = 0o666) -> BinaryIO:
    """Open a file to which lines are added, or make it; what is written goes behind all that is there.

    Raises:
        LaidByOthers: a link, or a file that has other names or another owner than its folder allows.
        NotAFile: no regular file.
        OSError: it cannot be opened.
    """
    return os.fdopen(_own(path, os.O_WRONLY | os.O_APPEND, mode), "ab")


def open_in_place(path: str | os.PathLike[str], mode: int = 0o666) -> BinaryIO:
    """Open a file that is read and written in place, without a buffer, or make it. Raises as `open_to_append`."""
    return os.fdopen(_own(path, os.O_RDWR, mode), "r+b", buffering=0)


def _own(path: str | os.PathLike[str], flags: int, mode: int) -> int:
    refuse_laid_links(Path(path).parent)
    try:
        descriptor = os.open(
            path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode
        )
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LaidByOthers(path, "is a link, and is not written through: remove it") from None
        if error.errno == errno.ENXIO:  # a pipe that nobody reads, a socket
            raise NotAFile(path, os.lstat(path).st_mode) from None
        raise
    try:
        _check_own(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_own(path: str | os.PathLike[str], found: os.stat_result) -> None:
    """A file with two names may be another's file; so may one of a stranger in a folder that is not a group's."""
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(path, found.st_mode)
    if found.st_nlink > 1:
        text = f"has {found.st_nlink} names (hard links), and is not written under this one: copy it, and put the copy"
        raise LaidByOthers(path, f"{text} in its place")
    folder = os.stat(os.path.dirname(os.path.abspath(path)))
    shared = folder.st_mode & stat.S_IWGRP and not folder.st_mode & stat.S_ISVTX
    if found.st_uid not in (os.geteuid(), folder.st_uid) and not shared:
        text = f"belongs to user {found.st_uid}, and its folder to user {folder.st_uid}: remove it"
        raise LaidByOthers(path, text)


def refuse_laid_links(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder to which a link leads that somebody laid to what is not theirs.

    A link of this user or of root is followed, and so is one that leads to a folder of its own owner.

    Raises:
        LaidByOthers: such a link is on the way.
    """
    path = Path(os.path.abspath(folder))
    trusted = (0, os.geteuid())
    for place in (path, *path.parents):
        try:
            found = os.lstat(place)
            if not stat.S_ISLNK(found.st_mode) or found.st_uid in trusted or os.stat(place).st_uid == found.st_uid:
                continue
        except OSError:
            continue  # it is not there: who makes it says so
        text = f"is a link that user {found.st_uid} laid to {os.path.realpath(place)}, which is another's: name that"
        raise LaidByOthers(place, text)


def cause(error: OSError) -> str:
    """Return why a file cannot be written, for a sentence that names it: of a laid link on the way, that one's name."""
    why = error.strerror or str(error)
    return f"{error.filename} {why}" if isinstance(error, LaidByOthers) else why


@contextmanager
def naming(path: str | os.PathLike[str], partial: Path | None = None) -> Iterator[None]:
    """Let an error of the system name the file, where it names none (as of a write or a sync) or the partial one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(partial)):
            error.filename, error.filename2 = os.fspath(path), None
        raise


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it; each is on the disk when this returns."""
    refuse_laid_links(folder)
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(new):
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder outlast a power cut."""
    with naming(folder):
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
