"""`fleet run`: train an ensemble, or go on with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fleet.commands.arguments import (
    AcceptChanges,
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
from fleet.commands.ranks import run_on_ranks
from fleet.session.options import RunOptions

_Out = Annotated[Path | None, typer.Option(help="the run directory; default: runs/NAME. A run that it holds goes on")]
_Rehearse = Annotated[
    bool, typer.Option("--rehearse", help="replace each device's compute by a wait taken from rate curves")
]
_TimeScale = Annotated[float | None, typer.Option(help="seconds that a rehearsal takes for one second of a real run")]
_Restarts = Annotated[
    int, typer.Option(min=0, help="starts in a row after ranks were lost, without a new checkpoint between")
]
_InPlace = Annotated[bool, typer.Option(help="let the others go on when a trainer is lost, where MPI can: Open MPI 5")]
_Reduce = Annotated[
    str | None,
    typer.Option(
        help="what adds gradients: device or mpi, in the order of DDP, on accelerators or on hosts; or horovod, whose "
        "bits are its own; default: device where accelerators can send to each other, else mpi"
    ),
]

_Folder = Annotated[
    Path | None, typer.Option(help="where the spec's modules and relative paths are looked for; default: beside it")
]


def run(
    spec: SpecFile,
    out: _Out = None,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    policy: PolicyName = None,
    settings: Settings = None,
    rehearse: _Rehearse = False,
    cluster: ClusterShape = None,
    time_scale: _TimeScale = None,
    restarts: _Restarts = 3,
    in_place: _InPlace = True,
    reduce: _Reduce = None,
    folder: _Folder = None,
    accept_changes: AcceptChanges = False,
) -> None:
    """Train the ensemble; go on with it if the run directory holds it already.

    Starts local MPI ranks, or joins those that mpirun, srun or jsrun started. Exit codes: 0 done, 1 something failed,
    2 bad input, 70 ranks were lost, 75 stopped early on purpose (after both, run the same command again).
    """
    with mendable():
        shape = cluster_shape(cluster)
        if shape is not None and not rehearse:
            raise ValueError("--cluster pretends nodes, which only a rehearsal can: add --rehearse")
    if shape is not None and trainers is None:
        trainers = sum(shape)
    changes = changes_of(trainers, preprocessors, policy, settings)
    if time_scale is not None:
        changes = (*changes, f"rehearse.time_scale={time_scale}")
    options = RunOptions(spec, changes, out, rehearse, shape, reduce=reduce, beside=folder, accept=accept_changes)
    sys.exit(run_on_ranks(options, restarts, in_place and reduce != "horovod"))  # Horovod needs all it was started with
