"""`fleet plan`: what a run would look like; trains nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleet.commands.arguments import (
    AsJson,
    ClusterShape,
    PolicyName,
    Preprocessors,
    Settings,
    SpecFile,
    Start,
    Trainers,
    changes_of,
    cluster_shape,
    start_of,
)
from fleet.commands.entry import mendable
from fleet.machine.standard_streams import others_on_standard_error

if TYPE_CHECKING:
    from rich.table import Table

    from fleet.session.dry_run import DryRun

_MOST_NODES = 2_000  # that are told one by one


def plan(
    spec: SpecFile,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    policy: PolicyName = None,
    settings: Settings = None,
    cluster: ClusterShape = None,
    start: Start = None,
    as_json: AsJson = False,
) -> None:
    """Dry run: cluster map, flotillas, predicted times, memory and shared memory; trains nothing."""
    from rich.console import Console

    from fleet.spec import load

    with mendable(), others_on_standard_error():
        shape, begin = cluster_shape(cluster), start_of(start)
        loaded = load(spec, changes_of(trainers, preprocessors, policy, settings))
        from fleet.session.dry_run import make_plan

        made = make_plan(loaded, shape, begin)
    if as_json:
        print(json.dumps(made.to_json(), indent=1))
        return
    console = Console()
    for table in plan_tables(made):
        console.print(table)


def plan_tables(plan: DryRun) -> list[Table | str]:
    """The plan for people."""
    from fleet.report.wording import broken_service, readable_bytes
    from fleet.session.console import binding_table

    parts: list[Table | str] = [binding_table(plan.cluster), _jobs_table(plan)]
    if any(job.spec.arrival or job.spec.deadline is not None for job in plan.jobs):
        parts.append(_times_table(plan))
    parts.append(_flotillas_table(plan))
    parts.append(f"predicted: {plan.seconds:.0f} s at most, if every job trains all its epochs")
    parts += plan.search
    parts += _bound(plan)
    if plan.chosen_workers:
        chosen = ", ".join(f"{job}: {count}" for job, count in plan.chosen_workers.items())
        parts.append(f"virtual_workers: auto stands for {chosen}")
    if plan.chosen_batches:
        sizes = ", ".join(f"{job}: {size}" for job, size in plan.chosen_batches.items())
        parts.append(f"batch_size: largest stands for about {sizes}; devices with memory of their own try it")
    if plan.more_workers is not None:
        parts.append(plan.more_workers.told(plan.seconds))
    parts += [f"dropped: {name}: {why}" for name, why in plan.dropped.items()]
    parts += [f"late: {job.name} ends at {job.end:.0f} s, its deadline is {job.deadline:.0f} s" for job in plan.late]
    parts += [
        f"{window.job}: {broken_service(window.promised, window.had, window.begin, window.end)}"
        for window in plan.broken
    ]
    if any(job.source == "assumed" for job in plan.jobs):
        parts.append(
            "rates marked ~ are guessed from operation counts: only their ratios mean something; "
            "a run learns better ones as it trains, `fleet profile` measures"
        )
    parts += plan.orders
    parts += [f"schedule: {text}" for text in plan.schedules]
    parts += plan.made
    memory = list(plan.shared_memory.items())
    parts += [f"shared memory of node {node}: {readable_bytes(size)}" for node, size in memory[:_MOST_NODES]]
    if len(memory) > _MOST_NODES:
        parts.append(f"and of {len(memory) - _MOST_NODES:,} nodes more")
    parts.append(plan.disk[1])
    return parts + [f"problem: {text}" for text in plan.problems]


def _bound(plan: DryRun) -> Iterator[str]:
    """Yield how far the plan can be from the best, where its policy knows."""
    planned = plan.bounded
    if planned is None:
        return
    since = "" if planned.start == 0 else f"from {planned.start:.0f} s on "
    if planned.worth is not None and planned.worth_bound is not None:
        yield (
            f"bound: {since}the plan is worth {planned.worth:.3f} by the policy's own measure, "
            f"and no plan then more than {planned.worth_bound:.3f}"
        )
    if planned.bound is None or planned.expected is None or planned.gap is None:
        return
    yield (
        f"bound: {since}no schedule ends before {planned.bound:.0f} s; the policy expects to end at "
        f"{planned.expected:.0f} s, {planned.gap:.1%} later"
    )


def _jobs_table(plan: DryRun) -> Table:
    from fleet.report.wording import readable_bytes

    least = ["devices"] * any(job.spec.minimum_devices > 1 for job in plan.jobs)
    columns = ("parameters", "memory", "samples", "epochs", *least, "samples/s on one device", "best, on")
    table = _table("jobs", "job", *columns)
    for job in plan.jobs:
        best = max(range(len(job.rates)), key=lambda index: job.rates[index])
        mark = "~" if job.source == "assumed" else ""
        table.add_row(
            job.name,
            f"{job.size.parameters:,}",
            readable_bytes(job.memory),
            f"{job.samples:,}",
            str(job.spec.stop.epochs),
            *(f"{job.spec.minimum_devices} to {job.spec.virtual_workers}" for _ in least),
            f"{mark}{job.rates[0]:,.0f}",
            f"{mark}{job.rates[best]:,.0f} on {best + 1}",
        )
    return table


def _times_table(plan: DryRun) -> Table:
    """Return when jobs come, begin and end, and should; empty where it never comes to that."""
    table = _table("times", "job", "arrives s", "begins s", "ends s", "deadline s")
    for job in plan.jobs:
        times = (job.spec.arrival, job.begin, job.end, job.deadline)
        table.add_row(job.name, *(f"{time:.1f}" if math.isfinite(time) else "" for time in times))
    return table


def _flotillas_table(plan: DryRun) -> Table:
    table = _table("flotillas", "no.", "start s", "end s", "job: devices")
    for number, one in enumerate(plan.rounds):
        jobs = "; ".join(f"{job}: {json.dumps(list(devices))}" for job, devices in one.allocation.items())
        table.add_row(str(number), f"{one.start:.1f}", f"{one.end:.1f}", jobs)
    return table


def _table(title: str, *columns: str) -> Table:
    from fleet.report.terminal import plain_table

    table = plain_table(title)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
