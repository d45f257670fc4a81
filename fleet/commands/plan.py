"""`fleet plan`: what a run would look like; trains nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fleet.commands.arguments import (
    AsJson,
    ClusterShape,
    PolicyName,
    Preprocessors,
    Settings,
    SpecFile,
    Trainers,
    changes_of,
    cluster_shape,
)
from fleet.commands.ending import mendable

if TYPE_CHECKING:
    from rich.table import Table

    from fleet.run.dry_run import DryRun


def plan(
    spec: SpecFile,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    policy: PolicyName = None,
    settings: Settings = None,
    cluster: ClusterShape = None,
    as_json: AsJson = False,
) -> None:
    """Dry run: cluster map, flotillas, predicted times, memory and shared memory; trains nothing."""
    from rich.console import Console

    from fleet.spec import load

    with mendable():
        shape = cluster_shape(cluster)
        loaded = load(spec, changes_of(trainers, preprocessors, policy, settings))
        from fleet.run.dry_run import make_plan

        made = make_plan(loaded, shape)
    if as_json:
        print(json.dumps(made.to_json(), indent=1))
        return
    console = Console()
    for table in plan_tables(made):
        console.print(table)


def plan_tables(plan: DryRun) -> list[Table | str]:
    """The plan for people."""
    from fleet.machine.binding_table import binding_table
    from fleet.profiling.sizing import readable

    parts: list[Table | str] = [binding_table(plan.cluster), _jobs_table(plan), _flotillas_table(plan)]
    parts.append(f"predicted: {plan.prediction.seconds:.0f} s at most, if every job trains all its epochs")
    if any(job.source == "assumed" for job in plan.jobs):
        parts.append(
            "rates marked ~ are guessed from operation counts: only their ratios mean something; "
            "`fleet profile` measures"
        )
    parts += [f"shared memory of node {node}: {readable(size)}" for node, size in plan.shared_memory.items()]
    return parts + [f"problem: {text}" for text in plan.problems]


def _jobs_table(plan: DryRun) -> Table:
    from fleet.profiling.sizing import readable

    table = _table("jobs", "job", "parameters", "memory", "samples", "epochs", "samples/s on one device", "best, on")
    for job in plan.jobs:
        best = max(range(len(job.rates)), key=lambda index: job.rates[index])
        mark = "~" if job.source == "assumed" else ""
        table.add_row(
            job.name, f"{job.size.parameters:,}", readable(job.memory), f"{job.samples:,}", str(job.epochs),
            f"{mark}{job.rates[0]:,.0f}",
            f"{mark}{job.rates[best]:,.0f} on {best + 1}",
        )  # fmt: skip
    return table


def _flotillas_table(plan: DryRun) -> Table:
    table = _table("flotillas", "no.", "start s", "end s", "job: devices")
    for round_ in plan.prediction.rounds:
        jobs = "; ".join(f"{job}: {json.dumps(list(devices))}" for job, devices in round_.allocation.items())
        table.add_row(str(round_.index), f"{round_.start:.1f}", f"{round_.end or 0:.1f}", jobs)
    return table


def _table(title: str, *columns: str) -> Table:
    from fleet.machine.terminal import plain_table

    table = plain_table(title)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
