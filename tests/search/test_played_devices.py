"""The benchmark's devices: decisions do not depend on them, and they train all that is wanted."""

from __future__ import annotations

import pytest

from benchmarks.search import main
from benchmarks.searched import virtual_time
from benchmarks.searched.deciders import AsResultsCome, InVirtualTime
from benchmarks.searched.devices import Devices
from benchmarks.searched.drawn_trials import ETA, RUNGS, DrawnTrials
from fleet.search.halving import Halving


def played(devices: int, error: float, elastic: bool, prefetch: int | None = None) -> tuple[str, int]:
    trials = DrawnTrials(3, 60, error)
    search = InVirtualTime(trials, Halving(RUNGS, ETA), 8, prefetch)
    outcome = Devices(trials, devices, search, elastic).play()
    assert outcome.epochs == sum(search.decided.values()) and 0 <= outcome.lost < 0.5
    assert len(outcome.known) == sum(epochs == RUNGS[-1] for epochs in search.decided.values())
    return search.digest(), outcome.epochs


def test_decisions_do_not_depend_on_devices() -> None:
    found = {
        played(devices, error, elastic, prefetch)
        for devices, error, elastic, prefetch in (
            (1, 0.0, False, None), (3, 0.3, False, None), (8, 0.6, True, None), (64, 0.6, True, 4), (8, 0.3, False, 0),
        )
    }  # fmt: skip
    assert len(found) == 1


def test_virtual_time_is_plain_where_costs_are_exact_and_moves_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.searched.devices.MOVING", 0.0)
    trials = DrawnTrials(1, 40, 0.0)
    virtual = InVirtualTime(trials, Halving(RUNGS, ETA), 4, None)
    mine = Devices(trials, 4, virtual, elastic=False).play()
    plain = AsResultsCome(trials, Halving(RUNGS, ETA), 4)
    theirs = Devices(trials, 4, plain, elastic=False).play()
    assert virtual.decided == plain.decided
    assert mine.seconds == pytest.approx(theirs.seconds, rel=0.01)


def test_the_part_tells_bars_tables_and_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "TRIALS", 40)
    found = main(repetitions=2, parts="virtual_time")
    assert len(found["tables"]) == 2 and len(found["notes"]) == 1
    assert all(set(bar) == {"name", "value", "bar", "ok"} for bar in found["bars"]) and len(found["bars"]) > 8
    with pytest.raises(SystemExit, match="has no part 'nothing'"):
        main(parts="nothing")
