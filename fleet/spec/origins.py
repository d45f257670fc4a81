"""Where the values of a spec were written, so that a problem found later can still name the line."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.spec.document import Origin
from fleet.spec.problem import Path, Problem, written


@dataclass(frozen=True)
class JobOrigin:
    """Where one job of the expanded list comes from.

    Attributes:
        base: its mapping in the file, as ``("jobs", 2)`` or ``("jobs", 1, "grid")``.
        over: for each path that a grid or sample sets in the job, where its value stands in the file.
        overrides: for each path set by ``--set`` under the job's generated name, the text of it.
    """

    base: Path
    over: Mapping[Path, Path] = field(default_factory=dict)
    overrides: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origins:
    """The places of all values. All Origins are equal: where a spec was written is not part of what it says."""

    file: str | None = field(default=None, compare=False)
    folder: pathlib.Path = field(default=pathlib.Path("."), compare=False)
    places: Mapping[Path, Origin] = field(default_factory=dict, compare=False)
    jobs: tuple[JobOrigin, ...] = field(default=(), compare=False)

    def problem(self, path: Path, value: Any, rule: str, suggestion: str | None = None, mend: str = "") -> Problem:
        """A problem with the value at ``path`` of the expanded spec, placed where that value was written."""
        at, place = self.locate(path)
        return Problem(written(at), value, rule, suggestion, mend, place.line, place.column, place.override)

    def locate(self, path: Path) -> tuple[Path, Origin]:
        """The path in the file, and the place, of a path in the expanded spec."""
        if len(path) < 2 or path[0] != "jobs" or not isinstance(path[1], int) or path[1] >= len(self.jobs):
            return path, self.place(path)
        origin, inside = self.jobs[path[1]], path[2:]
        for start, text in origin.overrides.items():
            if inside[: len(start)] == start or (
                start[: len(inside)] == inside and self.depth(origin.base, inside) < len(inside)
            ):
                return origin.base + inside, Origin(override=text)
        for start, source in origin.over.items():
            if inside[: len(start)] == start:
                return source + inside[len(start) :], self.place(source)
            if inside and start[: len(inside)] == inside and not self.is_written(origin, inside):
                return source, self.place(source)
        if self.depth(("defaults",), inside) > self.depth(origin.base, inside):
            return ("defaults",) + inside, self.place(("defaults",) + inside)
        return origin.base + inside, self.place(origin.base + inside)

    def is_written(self, origin: JobOrigin, inside: Path) -> bool:
        return origin.base + inside in self.places or ("defaults",) + inside in self.places

    def depth(self, base: Path, inside: Path) -> int:
        """How many parts of ``inside`` were written under ``base``."""
        return next((count for count in range(len(inside), 0, -1) if base + inside[:count] in self.places), 0)

    def place(self, path: Path) -> Origin:
        """The place of a path in the file, or of the nearest thing around it."""
        return next((self.places[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.places), Origin())
