"""Journals of searches as runs write them, made by the search alone: a device trains what is needed, seconds each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fleet.search import Change, Decision, Search
from fleet.search.of_spec import search_of, seed_of
from fleet.spec import EnsembleSpec
from fleet.spec.expansion import trial_name
from tests.search.support.curves import drawn

Line = dict[str, Any]
Value = Callable[[int, int], "float | None"]
SAMPLES = 1000


def searched_lines(
    spec: EnsembleSpec,
    value: Value,
    cost: Callable[..., int],
    most: int | None = None,
    later: int | None = None,
    hours: float | None = None,
) -> list[Line]:
    """The lines of a run of the spec's search on two devices.

    Args:
        value: (trial, epoch) -> the metric; None where the trial raises, NaN where it has none.
        cost: (trial, values) -> of an epoch.
        most: results after which nothing more is written; None: all.
        later: so many trials are asked for once all of the spec's are over.
        hours: that are over after `most` results; None: any number.
    """
    return _Writer(spec, value, cost, later).run(most, hours)


class _Writer:
    def __init__(self, spec: EnsembleSpec, value: Value, cost: Callable[..., int], later: int | None) -> None:
        assert spec.search is not None
        self.spec, self.section, self.value, self.cost = spec, spec.search, value, cost
        self.lines, self.later = list[Line](), later
        self.now, self.written, self.round = 0.0, 0, 0

    def run(self, most: int | None, hours: float | None) -> list[Line]:
        search, asked = search_of(self.spec, self.cost), self.section
        told = {"policy": "local", "name": "searched", "host": "here", "versions": {}, "fleet": "0"}
        self.write("session", session=0, search_seed=seed_of(self.spec), **told)
        self.write("cluster", ranks=[], devices_per_node=[2])
        budget = None if asked.budget is None else asked.budget.epochs
        bounds: Line = {"width": asked.width, "trials": asked.most_trials, "epochs": budget, "metric": asked.metrics[0]}
        bounds["hours"] = hours
        further = list(zip(asked.metrics[1:], asked.maximises[1:]))
        if further:
            bounds["further"] = [{"metric": name, "mode": "max" if more else "min"} for name, more in further]
        self.write("bounds", time=0, mode="max" if asked.maximise else "min", **bounds)
        self.decide(search, most)
        if self.later is not None:
            search.changed(Change(search.clock, trials=self.later))
            self.write("bounds", time=search.clock, mode="min", **{**bounds, "trials": self.later})
            self.decide(search, most)
        if hours is not None:
            search.changed(Change(search.clock, over=True))
            self.write("bounds", time=search.clock, mode="min", **bounds, over=True)
            self.decide(search, None)
        if search.is_over:
            for trial in range(search.begun):
                if search.status(trial) == "stopped":
                    self.write("pruned", job=self.name(search, trial), epoch=1)
            self.write("ended", status="done", wall_seconds=self.now, overhead_seconds={})
        return self.lines

    def decide(self, search: Search, most: int | None) -> None:
        told = 0
        while not search.is_over and (most is None or told < most):
            self.decided(search)
            self.train(search)
            told += 1
        self.decided(search)

    @property
    def others(self) -> range:
        """Places of the further metrics."""
        return range(1, len(self.section.metrics))

    def further(self, trial: int, place: int) -> float:
        """A further metric of a trial, whatever it has trained."""
        return drawn(trial, -place)

    def write(self, event: str, **keys: Any) -> None:
        self.lines.append({"t": round(self.now, 3), "unix": 1.7e9 + self.now, "event": event, **keys})

    def name(self, search: Search, trial: int) -> str:
        return trial_name(self.section.name, trial, search.values(trial))

    def decided(self, search: Search) -> None:
        for one in search.decisions[self.written :]:
            self.decision(search, one)
        self.written = len(search.decisions)

    def decision(self, search: Search, one: Decision) -> None:
        name, began = self.name(search, one.trial), one.kind == "start"
        if began:
            self.write(
                "job", job=name, model="m", parameters=10, virtual_workers=2, batch_size=10, seed=one.trial, data="d",
                samples=SAMPLES, max_epochs=self.section.epochs,
            )  # fmt: skip
            self.write("rates", job=name, source="guessed", measured={"1": 1.0}, fitted=[1.0, 2.0])
        values = search.values(one.trial)
        more = {"values": values, "cost": self.cost(one.trial, values)} if began else {}
        more |= {} if one.copy is None else {"copy": asdict(one.copy)}
        keys = {"start": one.start, "end": one.end, "time": one.time, "kind": one.kind}
        self.write("search", job=name, trial=one.trial, **keys, **more)

    def train(self, search: Search) -> None:
        segment = search.needed()[0]
        name, device = self.name(search, segment.trial), [self.round % 2]
        where = {"round": self.round, "job": name, "devices": device}
        self.write("planned", round=self.round, allocation={name: device}, paces={}, seconds=0.0)
        self.write("started", **where, epoch=segment.start, step=0, seconds=0.1)
        told = self.value(segment.trial, segment.end)
        for epoch in range(segment.start + 1, segment.end + 1 - (told is None)):
            self.now += 1 + segment.trial % 3
            here = self.value(segment.trial, epoch)
            metrics = {} if here is None else {self.section.metrics[0]: here}
            self.write("epoch", **where, epoch=epoch, step=0, seconds=float(1 + segment.trial % 3), metrics=metrics)
        if told is None:
            self.write("failed", **where, epoch=segment.start, error="ValueError: it leaks", traceback="")
        elif segment.end == self.section.epochs:
            self.write("done", **where, epoch=segment.end, why="epochs", metrics={self.section.metrics[0]: told})
        else:
            self.write("paused", **where, epoch=segment.end, step=0, why="pause")
        finite = told if told is not None and math.isfinite(told) else None
        further = [] if finite is None else [self.further(segment.trial, place) for place in self.others]
        keys = {"further": further} if further else {}
        self.write("result", job=name, trial=segment.trial, epoch=segment.end, value=finite, **keys)
        search.tell(segment.trial, segment.end, finite, further)
        self.round += 1
