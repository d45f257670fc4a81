"""Where a batch script is kept: under a name of its own, since jobs that go on submit their script again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

from fleet.machine.submit.script import BatchScript
from fleet.machine.submit.site import SiteError


def placed_script(
    script: BatchScript, any_name: bool, fill: Callable[[BatchScript], str], keep: bool = True
) -> tuple[BatchScript, str]:
    """The script with the path that it gets, and its text; no file is overwritten.

    Args:
        any_name: another path, with a number, will do where there is another file: NAME-2.sh.
        fill: gives the script's text.
        keep: write it; else only find its path.

    Raises:
        SiteError: there is another file, or it cannot be written.
    """
    wanted = script.path
    for number in count(1):
        path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}") if number > 1 else wanted
        made = replace(script, path=path)
        text = fill(made)
        try:
            if _takes(made, text, keep):
                return made, text
        except OSError as error:
            raise SiteError(f"--script {path}: {error.strerror}; name a file that can be written") from None
        if not any_name:
            break
    raise SiteError(
        f"--script {wanted}: there is another file of that name; give another, or remove it once no job needs it"
    )


def _takes(script: BatchScript, text: str, keep: bool) -> bool:
    """Whether the script has its path: nobody has, or a file that says the same."""
    path = script.path
    if keep:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _write_new(path, text):
            return True
    elif not path.exists():
        return True
    return path.is_file() and path.read_bytes() == text.encode()


def _write_new(path: Path, text: str) -> bool:
    """Write a file that may be run, whole, unless there is one of that name; returns whether it was written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o755)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True
