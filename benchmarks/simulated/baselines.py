"""Schedulers that know nothing of deadlines, on ElasticFlow's traces (ASPLOS'23, 6.2 and 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.simulated.part import Part, published
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.machines.rate_tables import read_rate_table
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import read_trace
from fleet.spec.policies import policy

POINTS = 0.05
"""How far a deadline ratio may lie from the published one."""


@dataclass(frozen=True)
class Setting:
    """A trace, its rates and its cluster; and the deadline ratios that the authors' program gives, by policy."""

    trace: str
    rates: str
    cluster: Cluster
    theirs: dict[str, float]


HELD = Setting("195job", "elasticflow_a100", Cluster((8,) * 16), {"tiresias": 0.4615, "gandiva": 0.241})
OTHERS = (
    Setting("elasticVpollux_e", "elasticflow_t4", Cluster((4,) * 16), {"tiresias": 0.287, "gandiva": 0.092}),
    Setting("cluster10", "elasticflow_a100", Cluster((8,) * 32), {"tiresias": 0.477, "gandiva": 0.331}),
)
MENDED: dict[str, Any] = {"literal": False}
EXTRA = ("fifo", "themis", "optimus")
FLAW = (
    "gandiva as the authors' program has it gives back ceil(s / size) nodes where s devices are too many, which leaves "
    "a size of job one node; with s / (devices of a node), `literal: false`, the ratio is {mended:.3f}"
)


def measure(part: Part, repetitions: int) -> None:
    """The deadline ratios of Tiresias and Gandiva beside the published ones, and those of others beside them."""
    settings = [setting for setting in (HELD, *OTHERS) if _files(setting)]
    if HELD not in settings:
        part.note("the traces of ElasticFlow are not there; FLEET_TRACES names the folder that holds them")
        return
    rows = [row for setting in settings for row in _rows(part, setting)]
    columns = ["trace", "policy", "deadline ratio", "theirs", "mean JCT, s", "p99 JCT, s", "restarts", "seconds"]
    part.table("schedulers that know nothing of deadlines", columns, rows)


def _rows(part: Part, setting: Setting) -> list[list[Any]]:
    """A line for each policy on one trace; on the first one also bars, and what Gandiva's flaw costs."""
    rows = []
    for name in (*setting.theirs, *EXTRA):
        outcome, theirs = _played(setting, name, {}), setting.theirs.get(name)
        rows.append([setting.trace, name, *_figures(outcome, theirs)])
        if setting is HELD and theirs is not None:
            _bar(part, name, outcome.deadline_ratio, theirs)
    if setting is HELD:
        mended = _played(setting, "gandiva", MENDED)
        rows.append([setting.trace, "gandiva (mended)", *_figures(mended, None)])
        part.note(FLAW.format(mended=mended.deadline_ratio))
    return rows


def _files(setting: Setting) -> tuple[Path, Path] | None:
    trace, rates = published(f"traces/elasticflow/{setting.trace}.csv"), published(f"measurements/{setting.rates}")
    return None if trace is None or rates is None else (trace, rates)


def _played(setting: Setting, name: str, parameters: dict[str, Any]) -> SimulationOutcome:
    files = _files(setting)
    assert files is not None
    machine = MeasuredMachine(setting.cluster, read_rate_table(files[1]))
    return Simulation(read_trace(files[0]), machine, policy(name, **parameters)).run()


def _bar(part: Part, name: str, ours: float, theirs: float) -> None:
    low, high = theirs - POINTS, theirs + POINTS
    part.bar(f"{HELD.trace} {name}: deadline ratio", ours, f"{low:.3f} to {high:.3f}", low <= ours <= high)


def _figures(outcome: SimulationOutcome, theirs: float | None) -> list[Any]:
    told = outcome.summary()
    return [
        round(outcome.deadline_ratio, 4), "" if theirs is None else theirs, round(told["avg_jct"]),
        round(told["p99_jct"]), told["restarts"], round(outcome.seconds, 2),
    ]  # fmt: skip
