"""A part of gpu_check: what it is given, and what it finds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rank_processes import end
from benchmarks.simulated.part import Part
from fleet.journal.whole_files import strict_json
from preprocess.files.writing import write_whole

ROOT = Path(__file__).resolve().parents[2]
_RESERVE = 0.08
"""Part of its time that a part leaves, so that it ends by itself."""


class Late(TimeoutError):
    """A command was ended for its time.

    output: what it had written.
    """

    def __init__(self, command: str, output: str) -> None:
        super().__init__(f"{command} was ended for its time; its last words: {last_words(output)}")
        self.output = output


class Skipped(Exception):
    """A part has nothing to look at here; the text says why."""


@dataclass(frozen=True)
class Given:
    """What the devices are, and until when.

    kind, count, memory: see FoundDevice. small: sizes are for a rig on a CPU. seconds: from the start of the part's
    process. until: their end, by `time.monotonic`, which all processes of a machine share.
    """

    kind: str
    count: int
    memory: int
    small: bool
    seconds: float
    until: float

    @property
    def device(self) -> str:
        """The first of the devices."""
        return f"{self.kind}:0"

    def batch(self, most: int) -> int:
        """Samples of a batch: `most` on a large device, fewer on smaller ones."""
        if self.small:
            return 2
        return most if self.memory >= 30 << 30 else max(1, most // (2 if self.memory >= 14 << 30 else 4))


@dataclass
class GpuPart(Part):
    """What a part has found; the file follows, so that a part that is ended for its time has found something."""

    path: Path = Path()
    given: Given = field(default_factory=lambda: Given("cpu", 0, 0, True, 0.0, 0.0))
    late: str = ""
    """Which cases no time was left for."""

    def bar(self, name: str, value: float, wanted: str, ok: bool) -> None:
        super().bar(name, value, wanted, ok)
        self.keep()

    def table(self, title: str, columns: list[str], rows: list[list[Any]]) -> None:
        """A table of this title takes the place of an earlier one, as rows come one after another."""
        self.tables = [table for table in self.tables if table["title"] != title]
        if rows:
            super().table(title, columns, rows)
        self.keep()

    def note(self, text: str) -> None:
        super().note(text)
        self.keep()

    def keep(self, how: str = "out of time", words: str = "it was ended; what it had found is kept") -> None:
        """Write what is known by now; `how` it has ended if nobody says anything more."""
        found = {"status": how, "words": words, "bars": self.bars, "tables": self.tables, "notes": self.notes}
        write_whole(self.path, strict_json(found))

    def left(self) -> float:
        """Return the seconds that the part may still take."""
        return max(0.0, self.given.until - self.given.seconds * _RESERVE - time.monotonic())

    def shares(self, cases: Sequence[Any]) -> Iterator[tuple[Any, float]]:
        """Give each case with its share of the time, seconds; those for which none is left are told of."""
        for number, case in enumerate(cases):
            if self.left() < 1.0:
                late = [" ".join(map(str, each)) if isinstance(each, tuple) else each for each in cases[number:]]
                self.late = f"no time was left for {', '.join(map(str, late))}"
                self.note(self.late)
                return
            yield case, self.left() / (len(cases) - number)

    def command(self, words: Sequence[str], **variables: str) -> tuple[int, str]:
        """Run a command of fleet's checkout to its end; return its exit code and what it wrote.

        Late if the part's time ends first.
        """
        with tempfile.TemporaryFile("w+") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
            process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
            late = False
            try:
                process.wait(self.left())
            except subprocess.TimeoutExpired:
                late = True
            finally:
                end(process)
            log.seek(0)
            output = log.read()
        print(f"$ {' '.join(map(str, words))}\n{output}", flush=True)
        if late:
            raise Late(" ".join(words[1:4]), output)
        return process.returncode, output

    def fleet(self, *words: str | Path, **variables: str) -> str:
        """Run a command of fleet; return what it wrote. RuntimeError, with its last words, if it fails."""
        code, output = self.command([sys.executable, "-m", "fleet", *map(str, words)], **variables)
        if code:
            raise RuntimeError(f"fleet {words[0]} ended with code {code}: {last_words(output)}")
        return output

    def compared(self, what: str, left: Path, right: Path) -> None:
        """Hold two checkpoints or runs against each other: a bar."""
        words = [sys.executable, "-m", "fleet", "compare", str(left), str(right)]
        code, output = self.command(words)
        self.bar(f"weights that differ: {what}", float(code != 0), "0", code == 0)
        self.note(f"{what}: {last_words(output)}")


def last_words(output: str) -> str:
    """The last line of fleet's own, or else of any that says something, cut to be read in a table."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("fleet: ")]
    return (own or lines or ["it wrote nothing"])[-1][:300]


@contextmanager
def failures_noted(part: GpuPart, case: str) -> Iterator[None]:
    """Let a case that fails, such as one that finds no memory, leave the others to be measured."""
    try:
        yield
    except RuntimeError as error:
        traceback.print_exc()
        part.bar(f"{case} runs", 0.0, "1", False)
        part.note(f"{case}: {in_a_line(error)}")


def in_a_line(error: Exception) -> str:
    """The kind of an error, and the beginning of what it says."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *said[:1]])[:300]
