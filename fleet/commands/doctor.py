"""`fleet doctor`: what works on this machine; under a launcher, how its ranks were put."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.commands.arguments import AsJson
from fleet.machine.launch.launched import DONE, FAILED
from fleet.machine.standard_streams import tell

if TYPE_CHECKING:
    from fleet.machine.doctor import Check


def doctor(
    preprocessors: Annotated[int, typer.Option(help="under a launcher: ranks that prepare samples")] = 1,
    device: Annotated[str, typer.Option(help="device of trainers: auto, cpu, or torch's name of a kind")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads of each trainer, as resources.threads")] = 1,
    members_per_device: Annotated[
        int, typer.Option(min=1, help="trainers that may share a GPU, as resources.members_per_device")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Say what works here, and how to mend what does not; under mpirun, srun or jsrun, check where the ranks are.

    Exit codes: 0 runs work here, 1 something that runs need does not.
    """
    from fleet.machine.launch.launched import inside_launcher

    if inside_launcher():
        sys.exit(_examine_ranks(preprocessors, device, threads, members_per_device))
    from fleet.machine.doctor import Verdict, examine
    from fleet.spec.resources import Energy

    usual = Energy()
    checks = list(examine(Path(usual.powercap), Path(usual.hwmon)))
    broken = any(check.verdict is Verdict.BROKEN for check in checks)
    if as_json:
        told = [{**asdict(check), "verdict": check.verdict.value} for check in checks]
        print(json.dumps({"ok": not broken, "checks": told}, indent=1))
    else:
        _show(checks)
    sys.exit(FAILED if broken else DONE)


def _show(checks: list[Check]) -> None:
    from rich.console import Console
    from rich.markup import escape

    from fleet.machine.doctor import Verdict
    from fleet.report.terminal import plain_table

    styles = {Verdict.OK: "green", Verdict.MISSING: "yellow", Verdict.BROKEN: "red"}
    table = plain_table(show_header=False)
    for check in checks:
        mend = f"\n{escape(check.mend)}" if check.mend else ""
        verdict = f"[{styles[check.verdict]}]{check.verdict.value}[/]"
        table.add_row(check.name, verdict, f"{escape(check.text)}[dim]{mend}[/]")
    console = Console()
    console.print(table)
    broken = [check.name for check in checks if check.verdict is Verdict.BROKEN]
    console.print(f"broken: {', '.join(broken)}" if broken else "runs work here")


def _examine_ranks(preprocessors: int, device: str, threads: int, members: int) -> int:
    """The binding table and its warnings, from inside a rank."""
    from mpi4py import MPI

    from fleet.machine.binding import check_binding, gather_facts
    from fleet.machine.cluster_map import ClusterError, discover, gather
    from fleet.machine.doctor import listeners_by_node, listeners_here
    from fleet.session.console import binding_table, rank_console
    from trainers.repeatable.instruction_sets import processor

    world = MPI.COMM_WORLD
    try:
        cluster = discover(world, preprocessors, device, members=members, processor=processor())
    except ClusterError as error:
        if world.rank == 0:
            tell(str(error))
        return FAILED
    listeners = listeners_by_node(gather(world, listeners_here()))
    facts = gather_facts(world, cluster.places[world.rank])
    findings = check_binding(facts, threads, members) if facts else []
    if world.rank == 0:
        console = rank_console()
        console.print(binding_table(cluster))
        for finding in findings:
            console.print(f"{'refused' if finding.refuses else 'warning'}: {finding.text}", soft_wrap=True)
        if not findings:
            console.print("each rank has what it needs")
        for line in listeners:
            console.print(line, soft_wrap=True)
    return FAILED if any(finding.refuses for finding in findings) else DONE
