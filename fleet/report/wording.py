"""Numbers, times and devices as people read them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any

from fleet.journal.state import SampleCounts

METRIC_TITLES = {"accuracy": "Accuracy", "loss": "Loss", "test_loss": "Held-out loss"}
WHY = {
    "epochs": "all epochs trained",
    "target": "target reached",
    "patience": "no more improvement",
    "policy": "moved by the policy",
    "signal": "stopped by a signal",
    "asked": "stopped by name",
    "pause": "paused: its search has to decide",
    "ahead": "needed work took its devices",
    "pruned": "stopped by the search",
    "epoch": "left at its epoch's end, for another batch",
    "lost": "its rank was lost, it goes on from its last checkpoint",
}

BATCH_LIMITS = {
    "memory": "more has no room in memory",
    "most": "more is not asked for",
    "data": "a step has all samples of the data",
    "ring": "more has no room in shared memory",
    "time": "there was no time to try more",
}
"""Why a batch that is to be as large as can be is no larger."""


def duration(seconds: float) -> str:
    """0.42 s, 12.3 s, 4 min 05 s, 3 h 07 min."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"


def count(value: float | None) -> str:
    """12,345; a dash where nothing is known."""
    return "-" if value is None or not math.isfinite(value) else f"{value:,.0f}"


def cost(value: float) -> str:
    """12.30, or 0.00123: two decimals, or three digits that matter."""
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:.3g}"


def energy(joules: float | None) -> str:
    """812 J, 3.41 Wh, 12.3 kWh: three digits that matter; a dash where nothing is known."""
    if joules is None:
        return "-"
    if joules < 1000:
        return f"{joules:.3g} J"
    hours = joules / 3600
    return f"{hours:.3g} Wh" if hours < 1000 else f"{hours / 1000:,.3g} kWh"


def rate(value: float | None) -> str:
    """Samples per second with three digits that matter."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def metric(name: str, value: float | None) -> str:
    """A share (an accuracy) in percent, any other metric with four digits; nan where it diverged."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf"
    return f"{100 * value:.2f} %" if "accuracy" in name and 0 <= value <= 1 else f"{value:.4g}"


def per_read(samples: SampleCounts) -> str:
    """samples made for each one read: 0.25; empty where nobody made or read any."""
    ratio = samples.per_read
    if ratio is None:
        return ""
    return f"samples made for each one read: {ratio:{'.2f' if ratio >= 0.1 else '.2g'}}"


def figures_together(figures: Mapping[str, float], told: Collection[str] = ()) -> str:
    """nll 0.07, brier 0.03 ...: how good all networks are together; `told` are the figures that stand elsewhere."""
    return ", ".join(f"{name} {metric(name, value)}" for name, value in figures.items() if name not in told)


def metric_title(name: str) -> str:
    """A metric's name for a heading."""
    words = name.replace("_", " ")
    return METRIC_TITLES.get(name, words[:1].upper() + words[1:])


def devices(indices: Iterable[int]) -> str:
    """0-3, 5: the devices in as few words as possible."""
    runs = []
    for _, pairs in groupby(enumerate(sorted(indices)), key=lambda pair: pair[1] - pair[0]):
        run = [index for _, index in pairs]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(runs) or "-"


def broken_service(promised: float, had: float, begin: float, end: float) -> str:
    """A job had less of the devices than its service level promises; device-seconds and seconds."""
    window = end - begin
    return (
        f"its service level is broken: {had / window:.2f} devices of {promised / window:g} in the mean "
        f"from {duration(begin)} to {duration(end)}"
    )


def lateness(deadline: float | None, end: float | None) -> str:
    """What is told of a promised deadline that cannot be kept; seconds of the run, end None: it never ends."""
    due = "its promised deadline" if deadline is None or deadline < 0 else f"its deadline, {duration(deadline)},"
    if end is None:
        return f"{due} cannot be kept: no device is left for it"
    late = "" if deadline is None else f", {duration(end - deadline)} late"
    return f"{due} cannot be kept: it ends at {duration(end)} at the earliest{late}"


def readable_bytes(count: int) -> str:
    """Bytes for people, in GiB, or in MiB where that is nothing."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def plural(number: int, noun: str) -> str:
    """1 device, 2 devices."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """`text` without control characters: a name from a file can neither move a cursor nor colour a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def shown_value(value: Any) -> str:
    """A parameter's value as people read it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable(value if isinstance(value, str) else json.dumps(value))


def told_values(values: Mapping[str, Any]) -> str:
    """lr 0.01, widths [8, 16]: values by the last part of their path, by the whole path where that is not enough."""
    last = Counter(path.rpartition(".")[2] for path in values)
    short = {path: path.rpartition(".")[2] for path in values}
    return ", ".join(
        f"{short[path] if last[short[path]] == 1 else path} {shown_value(value)}" for path, value in values.items()
    )
