"""What an event costs rank 0 does not grow with the number of networks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import fleet
from benchmarks.scaled import coordinator
from benchmarks.scaled.played_ranks import PlayedRanks

FEW, MANY = 24, 192


def lines_of(networks: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many lines of fleet run for all events of each kind, as many as there are networks few."""
    found, home, before = Counter[str](), fleet.__path__[0], sys.gettrace()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found[kind] += 1
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(home) else None

    kind, happens = "start", coordinator._Run._happens

    def told(run: coordinator._Run, ranks: PlayedRanks) -> Iterator[tuple[str, Any]]:
        nonlocal kind
        for what, event in happens(run, ranks):
            kind = what
            yield what, event

    monkeypatch.setattr(coordinator, "MEASURED", FEW)
    monkeypatch.setattr(coordinator, "RARE", 4)
    monkeypatch.setattr(coordinator._Run, "_happens", told)
    try:
        sys.settrace(call)
        coordinator.event_costs(networks, "local")
    finally:
        sys.settrace(before)
    return found


def test_events_of_one_network_cost_the_same_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    few = lines_of(FEW, monkeypatch)
    with monkeypatch.context() as again:
        many = lines_of(MANY, again)
    for kind in ("step", "epoch", "checkpoint"):
        assert 0 < many[kind] <= 1.2 * few[kind], (
            f"{kind}: {few[kind]} lines with {FEW} networks, {many[kind]} with {MANY}"
        )
    for kind in ("start", "stop"):  # of all networks: as many times the work as there are networks
        assert many[kind] / MANY <= 1.5 * few[kind] / FEW, (
            f"{kind}: {few[kind]} lines with {FEW} networks, {many[kind]} with {MANY}"
        )
