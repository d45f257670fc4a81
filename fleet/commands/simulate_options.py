"""The options of `fleet simulate`, but for those of a recorded search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy", metavar="NAME", help="a policy, module:Name, or either:parameter=value,...; may be repeated"
    ),
]
TraceFile = Annotated[Path | None, typer.Option(metavar="FILE", help="the jobs, in any known format")]
Format = Annotated[str | None, typer.Option(metavar="NAME", help="the trace's format; default: found by its columns")]
Run = Annotated[Path | None, typer.Option(metavar="DIR", help="in place of a trace: the jobs of a run, at its rates")]
Drawn = Annotated[
    str | None, typer.Option(metavar="jobs=N,gap=S,...", help="in place of a trace: jobs drawn from the table of rates")
]
RatesFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="measured rates; default: the trace's durations")]
DrawModels = Annotated[bool, typer.Option("--draw-models", help="jobs get a model, and work, from the table of rates")]
Tightness = Annotated[
    str | None, typer.Option(metavar="LOW,HIGH", help="with --draw-models: deadlines at arrival + lambda x duration")
]
BatchRanges = Annotated[
    bool, typer.Option("--batch-ranges", help="policies may choose a job's batch between the measured ones")
]
Shape = Annotated[
    str | None, typer.Option(metavar="SHAPE", help="16x8, or 8x4:v100,4x4:p100; default with --run: the run's nodes")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a parameter of the policies that have it")
]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", metavar="S", help="root of all draws; may be repeated; default: 0")
]
StartSeconds = Annotated[
    float | None,
    typer.Option(
        metavar="S", help="seconds that a job loses when it first gets devices; default: 0, or the run's median"
    ),
]
RestartSeconds = Annotated[
    float | None,
    typer.Option(metavar="S", help="seconds that a job loses when it gets other devices; default: the same"),
]
Failures = Annotated[
    str | None, typer.Option(metavar="FILE|mean=S,repair=S", help="nodes that fail, from a file or drawn")
]
Slack = Annotated[
    float, typer.Option(metavar="SAMPLES", help="how far a job may be ahead of others that share its samples")
]
Guaranteed = Annotated[
    int | None, typer.Option(metavar="PRIORITY", help="jobs of this priority or a larger one take devices at once")
]
Processes = Annotated[int | None, typer.Option(metavar="N", help="simulations at once; default: one a core")]
Csv = Annotated[Path | None, typer.Option(metavar="FILE", help="write one line for each job")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="write report.html, simulation.json and tables of jobs, devices and time"),
]
