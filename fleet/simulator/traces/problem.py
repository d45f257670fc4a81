"""The mistakes in a trace or a table of rates, in words for the person who brought it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fleet.spec.problem import nearest, shown

SHOWN = 20
"""Problems that a report spells out; of the others it tells the count."""


@dataclass(frozen=True)
class TraceProblem:
    """One thing that is wrong.

    Attributes:
        file: as the user named it.
        rule: what should stand there.
        mend: what to do.
        line: line of the file, from 1; None: the whole file.
        column: name of the column.
        value: the text that stands there; None: nothing that could be shown.
    """

    file: str
    rule: str
    mend: str
    line: int | None = None
    column: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        place = [self.file] if self.line is None else [f"{self.file}: line {self.line}"]
        place += [] if self.column is None else [self.column]
        value = "" if self.value is None else f" = {shown(self.value, 60)}"
        return f"{', '.join(place)}{value}: {self.rule}; {self.mend}"


class TraceError(ValueError):
    """A trace, or a table of rates, that cannot be used.

    Attributes:
        problems: everything that is wrong with it, by file and line.
    """

    def __init__(self, problems: Iterable[TraceProblem]) -> None:
        found = dict.fromkeys(problems)
        self.problems = tuple(sorted(found, key=lambda problem: (problem.file, problem.line or 0)))
        super().__init__(self._report())

    @classmethod
    def of(cls, file: str | Path, rule: str, mend: str) -> TraceError:
        """The error of a file that is of no use as a whole."""
        return cls([TraceProblem(str(file), rule, mend)])

    def _report(self) -> str:
        count = len(self.problems)
        lines = [f"{count} problem{'' if count == 1 else 's'}"]
        lines += [f"  {number}. {problem}" for number, problem in enumerate(self.problems[:SHOWN], start=1)]
        if count > SHOWN:
            lines.append(f"  and {count - SHOWN} more")
        return "\n".join(lines)


def advice_on(value: str, names: Iterable[object]) -> str:
    """Advice on `value`, which is none of `names`: the nearest, if one is near, and all of them."""
    known = [str(name) for name in names]
    close = nearest(value, known)
    guess = f"did you mean {close!r}? " if close else ""
    return f"{guess}known: {', '.join(known) if known else 'none'}"
