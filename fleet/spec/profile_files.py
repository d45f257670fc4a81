"""The files of a profile: one, or the parts that jobs of their own measured."""

from __future__ import annotations

from glob import escape
from pathlib import Path


def part_name(path: Path, number: int, parts: int) -> Path:
    """Where a part of the profile `path` is written: `rates.2-of-4.json` is one of `rates.json`."""
    return path.with_name(f"{path.stem}.{number}-of-{parts}{path.suffix}")


def profile_files(path: Path) -> list[Path]:
    """The profile at `path`, or else all the parts of it that are there; empty if there is neither."""
    if path.is_file():
        return [path]
    return sorted(path.parent.glob(f"{escape(path.stem)}.*-of-*{escape(path.suffix)}"))
