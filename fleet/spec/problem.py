"""What is wrong with a spec, in words for the person who wrote it."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.scheduling.model.nearest import nearest as nearest  # what a spec could have meant

KeyPath = tuple[str | int, ...]


class Absent(enum.Enum):
    """The value of a key that is not there (``None`` is a value: YAML's null)."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent.ABSENT
_MANY_ALIKE = 8


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where, as in ``jobs[2].optimizer.nmae``; empty for the whole file.
        value: what stands there, or ABSENT.
        rule: what should stand there, or what went wrong.
        suggestion: the nearest valid name or value, if there is one.
        mend: what to do.
        line: line in the file, from 1; None if it was not written in a file.
        column: column in the file, from 1.
        origin: the ``--set`` that gave the value, if one did.
    """

    path: str
    value: Any
    rule: str
    suggestion: str | None = None
    mend: str = ""
    line: int | None = None
    column: int | None = None
    origin: str | None = None

    def __str__(self) -> str:
        lines = [self._place() + (f" = {shown(self.value)}" if self.path and self.value is not ABSENT else "")]
        lines.append(self.rule)
        if self.suggestion is not None and self.suggestion not in self.mend:
            lines.append(f"nearest: {self.suggestion}")
        if self.mend:
            lines.append(f"mend: {self.mend}")
        return "\n    ".join(lines)

    def _place(self) -> str:
        position = f"line {self.line}" if self.line is not None else ""
        if self.line is not None and self.column is not None and not self.path:
            position += f", column {self.column}"
        return ": ".join(part for part in (self.origin or position, self.path) if part) or "the whole spec"


class SpecError(ValueError):
    """A spec that cannot be used, with everything that is wrong with it.

    Attributes:
        problems: all of them, in the order of the file.
        file: the file they are in, as the user named it, or None.
    """

    def __init__(self, problems: Iterable[Problem], file: str | None = None) -> None:
        self.problems = in_order(problems)
        self.file = file
        super().__init__(self._report())

    def _report(self) -> str:
        count = len(self.problems)
        heading = f"{self.file or 'the spec'}: {count} problem{'' if count == 1 else 's'}"
        body = [f"{number}. {text}" for number, text in enumerate(self._told(), start=1)]
        return "\n".join([heading, *("  " + text.replace("\n", "\n  ") for text in body)])

    def _told(self) -> Iterator[str]:
        """Each problem; of very many that differ in the number of a job alone, the first stands for all."""
        alike: dict[tuple[str, str, str], list[Problem]] = {}
        for problem in self.problems:
            alike.setdefault((re.sub(r"\[\d+\]", "[]", problem.path), problem.rule, problem.mend), []).append(problem)
        for first, *others in alike.values():
            yield str(first)
            if len(others) < _MANY_ALIKE:
                yield from map(str, others)
            else:
                yield f"the same at {len(others):,} other places, from {others[0].path} to {others[-1].path}"


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The problems by line, each said once (a default shared by ten jobs is wrong once, not ten times)."""
    unique: dict[tuple[str, str, str], Problem] = {}
    for problem in problems:
        unique.setdefault((problem.path, problem.rule, problem.mend), problem)
    return tuple(sorted(unique.values(), key=lambda problem: problem.line or 0))


def written(path: KeyPath) -> str:
    """A path as people write it: ``("jobs", 2, "optimizer")`` is ``jobs[2].optimizer``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w+=-]+", part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def listed(names: Sequence[str], limit: int = 16) -> str:
    """The names in one line, the first ``limit`` of them if they are many."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def shown(value: object, limit: int = 100) -> str:
    """``repr`` of a value in at most ``limit`` characters."""
    try:
        text = repr(value)
    except Exception as error:  # a user's own object may have a broken __repr__, an int may be too long for text
        text = f"<{type(value).__name__}: {type(error).__name__} when shown>"
    return text if len(text) <= limit else text[: limit - 3] + "..."
