"""What an earlier session had no time to write down: processes that ended in the middle of a job's work."""

from __future__ import annotations

from fleet.coordination.coordinator import MOST_LOSSES, costs_too_many
from fleet.coordination.live_state import Recorder
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.work_note import take_deaths


def write_deaths(directory: RunDirectory, keeper: Recorder) -> None:
    """Jobs whose code ended a process have failed; those that may have are tried some more times."""
    ledger = keeper.state
    for death in take_deaths(directory.at_work):
        job = ledger.jobs.get(death.job)
        if job is None or not job.waits:
            continue
        error = death.error
        if not death.stack:
            keeper.record(events.RankCost(job=death.job, rank=death.rank))
            losses = ledger.jobs[death.job].ranks_cost
            if losses <= MOST_LOSSES:
                continue
            error = f"{error}; {costs_too_many(losses)}"
        keeper.record(
            events.Failed(job=death.job, epoch=job.epoch, error=error, traceback=death.stack, cost_ranks=True)
        )
