"""What people ask of a run's search, and tell it: they leave it in the run directory, and rank 0 takes it in.

DIR/search/changes/000003/change.json asks for other bounds. DIR/search/asked/000003/asked.json has the values of a
trial that a person trains, and told.json beside it what it came to. Whoever makes the folder has the number. Nothing is
taken away: the journal says what rank 0 has taken in, and when in virtual time.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleet.journal.strict_json import strict_json
from preprocess.files.reading import read_json
from preprocess.files.writing import make_folder, write_whole

BOUNDS = ("trials", "width", "epochs", "hours")
"""What of a search may be changed."""
_MOST_BYTES = 4 << 20  # of a wish, and of a trial's values


@dataclass(frozen=True)
class OwnTrial:
    """A trial that a person trains.

    Attributes:
        number: from 0.
        values: dotted path -> value.
        told: whether it has come to something.
        value: of the search's metric; None: it failed, or has come to nothing yet.
    """

    number: int
    values: Mapping[str, Any]
    told: bool = False
    value: float | None = None

    @property
    def status(self) -> Literal["suggested", "done", "failed"]:
        """How it stands."""
        return "suggested" if not self.told else "failed" if self.value is None else "done"


class SearchWishes:
    """The folder `search` of a run directory."""

    def __init__(self, directory: Path) -> None:
        self._asked, self._changes = (directory / "search" / each for each in ("asked", "changes"))

    # what people wish

    def change(self, bounds: Mapping[str, int | float]) -> int:
        """Ask for other bounds, some of BOUNDS; return the number of the wish."""
        number = _claimed(self._changes)
        _write_into(self._changes / _name(number) / "change.json", dict(bounds))
        return number

    def claim(self) -> int:
        """Claim the number of a trial; nobody else gets it."""
        return _claimed(self._asked)

    def ask(self, number: int, values: Mapping[str, Any]) -> None:
        """Begin the trial of a number that was claimed."""
        _write_into(self._asked / _name(number) / "asked.json", {"values": dict(values)})

    def tell(self, number: int, value: float | None) -> None:
        """Say what a trial has come to; None: it failed."""
        _write_into(self._asked / _name(number) / "told.json", {"value": value})

    # what there is

    def changes(self) -> dict[int, dict[str, int | float]]:
        """All bounds that were asked for, by the number of the wish."""
        found = {}
        for folder in _folders(self._changes):
            told = _read(folder / "change.json")
            if told is not None:
                found[int(folder.name)] = {key: told[key] for key in BOUNDS if _is_bound(key, told.get(key))}
        return found

    def trials(self) -> list[OwnTrial]:
        """All trials that people train, in the order of their numbers."""
        return [trial for folder in _folders(self._asked) if (trial := _trial(folder)) is not None]


def _trial(folder: Path) -> OwnTrial | None:
    asked, told = _read(folder / "asked.json"), _read(folder / "told.json")
    values = None if asked is None else asked.get("values")
    if not isinstance(values, dict):
        return None
    value = None if told is None else told.get("value")
    known = type(value) in (int, float)
    return OwnTrial(int(folder.name), values, told is not None, float(value) if known and value is not None else None)


def _is_bound(key: str, value: Any) -> bool:
    kinds = (int, float) if key == "hours" else (int,)
    return type(value) in kinds and value > 0


def _name(number: int) -> str:
    return f"{number:06d}"


def _claimed(folder: Path) -> int:
    """Make a folder whose name is the next number, and return that."""
    make_folder(folder)
    number = max((int(each.name) for each in _folders(folder)), default=-1) + 1
    while True:
        try:
            (folder / _name(number)).mkdir()
        except FileExistsError:  # somebody was quicker
            number += 1
        else:
            return number


def _write_into(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, strict_json({**content, "by": _who(), "unix": time.time()}))


def _folders(folder: Path) -> Iterator[Path]:
    return iter(sorted(each for each in folder.glob("[0-9]*") if each.name.isdecimal()))


def _read(path: Path) -> dict[str, Any] | None:
    """What a file says; None where it is not there yet, or says nothing."""
    try:
        found = read_json(path, _MOST_BYTES)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _who() -> str:
    """user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
