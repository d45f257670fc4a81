"""Searches of Fashion-MNIST by fleet and by other libraries, in turn: how long, how good, and what a kill costs."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar, bar, median_bar
from benchmarks.fashion_files import FASHION, Files, cut_files
from benchmarks.searched.peers.plan import Plan
from benchmarks.searched.peers.ways import (
    FLEET,
    NAMES,
    PEERS,
    SYNCHRONOUS,
    EpochDone,
    Failed,
    decided,
    epochs_of,
    searched,
)

SEEDS = 5
COUNTS = {"train": 5000, "held_out": 2000}  # samples
TRIALS, RUNGS, ETA, BATCH = 27, [1, 3, 9], 3, 64
NEARLY = 0.98  # of the lowest of the best accuracies of one seed: the target
LIMIT = 300.0  # seconds of one search
PADDING = 2  # of pictures that are cropped at random
TOLERANCE = 0.002  # of accuracies that count as equal
_COLUMNS = ["search", "wall s", "wall s to target", "core-s to target", "core-s", "epochs", "twice", "best accuracy"]
_KILL_COLUMNS = [
    "search",
    "epochs before the kill",
    "epochs trained again",
    "each trial as far as without",
    "best accuracy",
]
Notes = dict[str, str]


@dataclass(frozen=True)
class Searched:
    """A search that has ended.

    Attributes:
        begin: in seconds since 1970.
        wall: seconds.
        epochs: in the order in which they ended; those that nobody wanted in the end, too.
        decided: trial -> epochs that the search wanted of it; None: all that were trained.
    """

    begin: float
    wall: float
    epochs: tuple[EpochDone, ...]
    decided: Mapping[int, int] | None = None

    @property
    def lengths(self) -> Mapping[int, int]:
        """Trial -> epochs that it has."""
        trained = {each.trial: each.epoch for each in sorted(self.epochs, key=lambda each: each.epoch)}
        return trained if self.decided is None else self.decided

    @property
    def best(self) -> float:
        """The accuracy of the best of all last epochs."""
        lengths = self.lengths
        return max((each.accuracy for each in self.epochs if lengths.get(each.trial) == each.epoch), default=0.0)

    @property
    def twice(self) -> int:
        """How many epochs were trained again."""
        return len(self.epochs) - len({(each.trial, each.epoch) for each in self.epochs})

    def to(self, accuracy: float) -> tuple[float, float]:
        """Wall seconds, and core-seconds of all epochs that had ended, until the first epoch as accurate as this."""
        at = next(number for number, each in enumerate(self.epochs) if each.accuracy >= accuracy)
        return self.epochs[at].unix - self.begin, sum(each.seconds for each in self.epochs[: at + 1])


def measure(repetitions: int) -> dict[str, Any]:
    """Search with each library and each seed, in turn; then kill each once in the middle.

    Args:
        repetitions: seeds; 0: SEEDS.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}
    """
    return _measured(repetitions, None)


def measure_augmented(repetitions: int) -> dict[str, Any]:
    """The same with pictures that are cropped and flipped at random, and without kills.

    The others' pictures come from a `Dataset`, each when a trial's `DataLoader` asks for it; their draws are torch's
    and not fleet's, so accuracies are alike and not the same.
    """
    return _measured(repetitions, PADDING)


def _measured(repetitions: int, padding: int | None) -> dict[str, Any]:
    found: dict[str, list[Searched]] = {way: [] for way in NAMES}
    notes: Notes = {}
    with tempfile.TemporaryDirectory(prefix="searches-") as name:
        folder = Path(name)
        files, what = cut_files(folder, COUNTS)
        for seed in range(repetitions or SEEDS):
            for way in NAMES:
                if way not in notes:
                    ended = _search(way, _prepared(folder / f"{way}-{seed}", seed, files, padding), notes)
                    found[way] += [] if ended is None else [ended]
        whole = {way: ended for way, ended in found.items() if way not in notes}
        killed = {
            way: _killed(way, _prepared(folder / f"{way}-killed", 0, files), whole[way][0], notes)
            for way in NAMES
            if padding is None and way in whole and way != SYNCHRONOUS
        }
    told = "" if padding is None else f", each cropped from {padding} pixels around it and flipped at random"
    title = f"{what}, {COUNTS['train']:,} pictures to train on and {COUNTS['held_out']:,} held out{told}: "
    title += f"the same {TRIALS} networks in the same order, rungs {RUNGS}, eta {ETA}, 2 cores; "
    title += f"medians of {repetitions or SEEDS} seeds"
    bars = [*_bars(whole), *(_kill_bars(killed) if padding is None else ())]
    if what != FASHION:
        bars = [{**each, "name": f"{each['name']} ({what})"} for each in bars]
        notes["fashion"] = f"{FASHION} is not here (Debian: dataset-fashion-mnist), so this says nothing of it"
    return {
        "bars": bars,
        "tables": [_table(whole, title), *([_kill_table(killed)] if padding is None else ())],
        "notes": [f"{NAMES.get(way, 'data')}: {text}" for way, text in notes.items()],
    }


def _prepared(folder: Path, seed: int, files: Files, padding: int | None = None) -> Path:
    folder.mkdir()
    Plan(seed, _trials(seed), RUNGS, ETA, BATCH, files, padding).write(folder)
    return folder


def _trials(seed: int) -> list[dict[str, Any]]:
    """Values by seed path (seed, "peers")."""
    draw = np.random.default_rng([seed, *b"peers"])
    return [
        {
            "widths": [[8, 16], [16, 32], [8, 16, 32], [16, 32, 64]][int(draw.integers(4))],
            "lr": float(f"{10 ** draw.uniform(-3.5, 0.3):.6g}"),
            "momentum": float(f"{draw.uniform(0.0, 0.97):.6g}"),
            "batch_norm": bool(draw.integers(2)),
        }
        for _ in range(TRIALS)
    ]


def _search(way: str, folder: Path, notes: Notes) -> Searched | None:
    """What a library's search came to; None: it failed, and a note says why."""
    begin = time.time()
    try:
        wall = searched(way, folder, LIMIT)
    except Failed as error:
        notes[way] = str(error)
        return None
    assert wall is not None, "nobody has killed it"
    epochs = tuple(sorted(epochs_of(way, folder), key=lambda each: each.unix))
    return Searched(begin, wall, epochs, decided(way, folder))


def _killed(way: str, folder: Path, unbroken: Searched, notes: Notes) -> tuple[int, Searched, bool] | None:
    """Kill all of a search's processes once half of its epochs are trained, and let it go on.

    Returns:
        epochs by the kill, the whole, and whether each trial has as many epochs as without the kill; None: it failed.
    """
    half = len(unbroken.epochs) // 2
    try:
        searched(way, folder, LIMIT, lambda: len(epochs_of(way, folder)) >= half)
    except Failed as error:
        notes[way] = str(error)
        return None
    before = len(epochs_of(way, folder))
    ended = _search(way, folder, notes)
    return None if ended is None else (before, ended, ended.lengths == unbroken.lengths)


def _bars(found: Mapping[str, Sequence[Searched]]) -> list[Bar]:
    targets = _targets(found)
    bars = [
        each
        for own in (FLEET, SYNCHRONOUS)
        for way in PEERS
        if found.get(own) and found.get(way)
        for each in _against(NAMES[own], found[own], NAMES[way], found[way], targets)
    ]
    mine = [each for own in (FLEET, SYNCHRONOUS) for each in found.get(own, [])]
    twice = sum(each.twice for each in mine)
    return [*bars, bar("epochs that fleet trained twice", twice, "0", bool(mine) and not twice)]


def _against(
    name: str, mine: Sequence[Searched], other: str, theirs: Sequence[Searched], targets: Sequence[float]
) -> list[Bar]:
    """How long one of fleet's ways takes beside another library's, whole and to the target; and how good it gets."""
    ratios = [one.wall / each.wall for one, each in zip(mine, theirs)]
    ratio = statistics.median(ratios)
    to_target = [one.to(target)[0] / each.to(target)[0] for one, each, target in zip(mine, theirs, targets)]
    sooner = statistics.median(to_target)
    better = statistics.mean(one.best - each.best for one, each in zip(mine, theirs))
    return [
        median_bar(f"{name}: wall seconds over those of {other}", ratios, "< 1", ratio < 1),
        median_bar(f"{name}: wall seconds to the target over those of {other}", to_target, "< 1", sooner < 1),
        bar(
            f"{name}: best accuracy less that of {other}, mean",
            round(better, 4), f">= -{TOLERANCE:g}", better >= -TOLERANCE,
        ),
    ]  # fmt: skip


def _kill_bars(killed: Mapping[str, tuple[int, Searched, bool] | None]) -> list[Bar]:
    mine = killed.get(FLEET)
    if mine is None:
        return [bar("epochs that fleet trained again after a kill", -1, "0", False)]
    _, ended, same = mine
    return [
        bar("epochs that fleet trained again after a kill", ended.twice, "0", not ended.twice),
        bar("fleet's trials as far after a kill as without", int(same), "1", same),
    ]


def _targets(found: Mapping[str, Sequence[Searched]]) -> list[float]:
    """By seed, an accuracy that all searches reach."""
    seeds = min((len(each) for each in found.values()), default=0)
    return [NEARLY * min(each[seed].best for each in found.values()) for seed in range(seeds)]


def _table(found: Mapping[str, Sequence[Searched]], title: str) -> dict[str, Any]:
    targets, rows = _targets(found), []
    for way, ended in found.items():
        reached = [each.to(target) for each, target in zip(ended, targets)]
        columns: list[list[float]] = [
            [each.wall for each in ended], [wall for wall, _ in reached], [core for _, core in reached],
            [sum(epoch.seconds for epoch in each.epochs) for each in ended], [len(each.epochs) for each in ended],
        ]  # fmt: skip
        middle = [round(statistics.median(column), 1) for column in columns]
        best = statistics.mean(each.best for each in ended)
        rows.append([NAMES[way], *middle, sum(each.twice for each in ended), round(best, 4)])
    told = ", ".join(f"{target:.3f}" for target in targets)
    return {"title": f"{title}; accuracies are means; targets {told}", "columns": _COLUMNS, "rows": rows}


def _kill_table(killed: Mapping[str, tuple[int, Searched, bool] | None]) -> dict[str, Any]:
    rows = [
        [NAMES[way], before, ended.twice, "yes" if same else "no", round(ended.best, 4)]
        for way, (before, ended, same) in ((way, each) for way, each in killed.items() if each is not None)
    ]
    return {
        "title": "kill -9 of all processes in the middle, then the same again",
        "columns": _KILL_COLUMNS,
        "rows": rows,
    }
