"""What an event costs rank 0 does not grow with the number of networks."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

import fleet
from benchmarks.scaled import coordinator

FEW, MANY = 24, 192


def lines_of(networks: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many lines of fleet run for all events of each kind, as many as there are networks few."""
    found, home, before = Counter[str](), fleet.__path__[0], sys.gettrace()
    kind = ""

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found[kind] += 1
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal kind
        if frame.f_code.co_name == "next_event" and frame.f_code.co_filename == coordinator.__file__:
            kind = ""
        return line if frame.f_code.co_filename.startswith(home) else None

    said = coordinator.PlayedRanks.said

    def told(ranks: coordinator.PlayedRanks) -> Any:
        nonlocal kind
        for what, event in said(ranks):
            kind = what
            yield what, event

    monkeypatch.setattr(coordinator, "MEASURED", FEW)
    monkeypatch.setattr(coordinator.PlayedRanks, "said", told)
    try:
        sys.settrace(call)
        coordinator.event_costs(networks, networks, "local")
    finally:
        sys.settrace(before)
    return found


def test_steps_epochs_and_checkpoints_cost_the_same_with_many_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    few = lines_of(FEW, monkeypatch)
    with monkeypatch.context() as again:
        many = lines_of(MANY, again)
    for kind in ("step", "epoch", "checkpoint"):
        assert 0 < many[kind] <= 1.2 * few[kind], (
            f"{kind}: {few[kind]} lines with {FEW} networks, {many[kind]} with {MANY}"
        )
