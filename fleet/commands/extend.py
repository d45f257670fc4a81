"""`fleet extend`: train a network of a run further than its spec says."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fleet.commands.arguments import AcceptChanges, Preprocessors, RunFolder, Settings, Trainers, Trust, changes_of
from fleet.commands.ranks import run_on_ranks
from fleet.journal.whole_files import ENSEMBLE_NAME
from fleet.session.options import ExtendOrder, RunOptions

_Job = Annotated[str, typer.Argument(help="one of the run's jobs", metavar="JOB", show_default=False)]
_Epochs = Annotated[int, typer.Option(min=1, help="after so many epochs, from its first, it ends", show_default=False)]
_OnlyEpochs = Annotated[bool, typer.Option("--only-epochs", help="its target and its patience count no more")]


def extend(
    directory: RunFolder,
    job: _Job,
    epochs: _Epochs,
    only_epochs: _OnlyEpochs = False,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    settings: Settings = None,
    trust: Trust = False,
    accept_changes: AcceptChanges = False,
) -> None:
    """Go on with a run in which a job trains until more epochs: with the bits of a run that was longer from the start.

    What else of the run is not done goes on, too. Starts local MPI ranks, or joins those that mpirun, srun or jsrun
    started. A schedule of a fixed length is refused. Exit codes: those of `fleet run`.
    """
    changes = changes_of(trainers, preprocessors, None, settings)
    order = ExtendOrder(job, epochs, only_epochs, trust)
    options = RunOptions(directory / ENSEMBLE_NAME, changes, directory, extend=order, accept=accept_changes)
    sys.exit(run_on_ranks(options, restarts=3, in_place=True))
