"""One rank's part where ranks predict together, from MPI's start to its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fleet.machine.launch.launched import DONE, launch_folder, tell_up
from fleet.machine.launch.leftovers import made_by_mpi, write_note
from fleet.session.predict.answer import told_of
from fleet.session.predict.asked import AskedPrediction
from fleet.session.predict.rank_team import PATIENCE, RankTeam
from fleet.session.predict.team import MENDABLE
from fleet.workers.agreement import BadInput, exit_code
from fleet.workers.rank import time_limit


def predict_on_rank(
    directory: Path, asked: AskedPrediction, show: Callable[[dict[str, Any]], object], patience: float = PATIENCE
) -> int:
    """Take part; returns the exit code. An error that no person can mend ends all ranks, with its traceback.

    Args:
        show: is given the figures, on rank 0.
        patience: seconds that ranks wait for each other: to begin, to read the run, and for each batch.
    """
    from mpi4py import MPI

    note = write_note([*made_by_mpi(), *launch_folder()])
    late = f"rank {MPI.COMM_WORLD.rank}: not every rank has begun within {patience:g} s, one is stuck or slow"
    with time_limit(MPI.COMM_WORLD, patience, late):
        world = MPI.COMM_WORLD.Dup()
    tell_up(world.rank)

    def work() -> int:
        try:
            told = told_of(directory, asked, RankTeam(world, patience))
        except MENDABLE as error:
            raise BadInput(str(error)) from error
        if world.rank == 0:
            show(told)
        return DONE

    code = exit_code(world, work)
    note.remove()
    return code
