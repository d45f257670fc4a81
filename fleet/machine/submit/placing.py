"""Where a batch script is kept: under a name of its own, since jobs that go on submit their script again."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from fleet.machine.submit.script import BatchScript
from fleet.machine.submit.site import SiteError
from preprocess.files.reading import NotAFile, TooLarge, read_bytes
from preprocess.files.writing import make_folder, whole_file


def placed_script(
    script: BatchScript,
    any_name: bool,
    fill: Callable[[BatchScript], str],
    keep: bool = True,
    hides: Callable[[str], bool] = lambda _: False,
) -> tuple[BatchScript, str]:
    """The script with the path that it gets, and its text; no file is overwritten.

    Args:
        any_name: another path, with a number, will do where there is another file: NAME-2.sh.
        fill: gives the script's text.
        keep: write it; else only find its path.
        hides: says of a text whether secrets stand in it: only its owner can read that.

    Raises:
        SiteError: there is another file, or it cannot be written.
    """
    wanted = script.path
    for number in count(1):
        path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}") if number > 1 else wanted
        made = replace(script, path=path)
        text = fill(made)
        try:
            if _takes(made.path, text, keep, 0o700 if hides(text) else 0o777):
                return made, text
        except OSError as error:
            raise SiteError(f"--script {path}: {error.strerror}; name a file that can be written") from None
        if not any_name:
            break
    raise SiteError(
        f"--script {wanted}: there is another file of that name; give another, or remove it once no job needs it"
    )


def _takes(path: Path, text: str, keep: bool, mode: int) -> bool:
    """Whether a script has its path: nobody has, or a file that says the same. mode: less what umask takes."""
    if keep:
        make_folder(path.parent)
        with suppress(FileExistsError):
            with whole_file(path, mode=mode, replace=False) as file:
                file.write(text.encode())
            return True
    elif not os.path.lexists(path):
        return True
    try:
        return read_bytes(path, len(text.encode())) == text.encode()
    except (TooLarge, NotAFile):
        return False
