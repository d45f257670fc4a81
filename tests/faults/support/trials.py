"""Lets system calls of a run fail, one point after the other, and says what is wrong with how it ended and went on."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.support.shim import Point, Shim
from tests.faults.support.small_runs import Judge, Start, acknowledged, ends_well, goes_on, quick_disk
from tests.live.support.processes import Ended


@dataclass(frozen=True)
class Tried:
    """A point; failed: the name and the path of its first call; wrong: what is; ended: the start on which it failed."""

    point: Point
    failed: str
    wrong: Sequence[str]
    ended: Ended

    @property
    def call(self) -> str:
        return self.failed.partition(" ")[0]


@dataclass(frozen=True)
class Trial:
    """Tries points of a run.

    Args:
        struck, plain: start it with the shim and without.
        wrong_with: what is wrong with a run that is done.
        rank: whose calls count; None: there is one process alone.
        gone_on: what was wrong with second starts, by what they found: one start for directories that are alike.
    """

    struck: Start
    plain: Start
    wrong_with: Judge
    rank: int | None = None
    gone_on: dict[str, list[str]] = field(default_factory=dict)

    def count(self) -> int:
        """How many calls it makes."""
        with quick_disk() as disk:
            watch = Shim(disk / "run", disk / "state")
            ended = self.struck(disk / "run", watch.variables(rank=self.rank))
            assert ended.code == 0, ended.output
            assert not self.wrong_with(disk / "run")
            return watch.calls

    def __call__(self, point: Point) -> Tried:
        """Let the call fail; then go on without."""
        with quick_disk() as disk:
            out, watch = disk / "run", Shim(disk / "run", disk / "state")
            ended = self.struck(out, watch.variables(point, rank=self.rank))
            failed = watch.failed.replace(str(disk), "")
            wrong = ends_well(ended, point.said if failed else "")
            if ended.code == 0:
                wrong += self.wrong_with(out)
            left = likeness(out)
            if left not in self.gone_on:
                self.gone_on[left] = goes_on(self.plain, out, self.wrong_with, acknowledged(out))
            return Tried(point, failed, [*wrong, *self.gone_on[left]], ended)

    def all(self, points: Iterable[Point]) -> list[Tried]:
        """Try them side by side."""
        with ThreadPoolExecutor(os.cpu_count()) as beside:
            return list(beside.map(self, points))


def likeness(out: Path) -> str:
    """Equal for directories that differ in nothing but times, numbers of processes, and what is only looked at."""
    digest = hashlib.blake2b()
    for path in sorted(out.rglob("*")):
        name, content = path.relative_to(out).as_posix(), path.read_bytes() if path.is_file() else b"/"
        if path.suffix in (".html",) or "tfevents" in name:
            name, content = re.sub(r"\d+", "0", name), b"" if not content else b"some"
        elif path.suffix != ".h5":
            name, content = re.sub(r"\d+", "0", name), content.replace(str(out).encode(), b"")
            content = re.sub(rb'"crc":"[0-9a-f]*|[\d.e-]+', b"0", content)
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def report(tried: Sequence[Tried]) -> str:
    """How many points there were, by call and error, and what went wrong at which."""
    table = Counter((each.call, each.point.error) for each in tried if each.failed)
    lines = [f"{call:12} {error:8} {number}" for (call, error), number in sorted(table.items())]
    wrong = [f"{each.point} {each.failed}: {'; '.join(each.wrong)}" for each in tried if each.wrong]
    return "\n".join([*lines, f"{sum(table.values())} points, {len(wrong)} wrong", *wrong])
