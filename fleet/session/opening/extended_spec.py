"""Jobs that train longer than the run's spec says, as `fleet extend` asks now or has asked before."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fleet.coordination.failures import storage
from fleet.coordination.live_state import LiveState
from fleet.journal import events
from fleet.journal.whole_files import Extension, read_extensions
from fleet.machine.standard_streams import tell
from fleet.models.errors import HarvestError
from fleet.models.extension import extension_of
from fleet.session.options import RunOptions
from fleet.spec import Job
from fleet.workers.agreement import BadInput


def check_extension(options: RunOptions) -> None:
    """See whether a job can be extended as the options ask, before ranks are started. BadInput if it cannot."""
    if options.extend is not None and options.out is not None:
        extensions(options, options.out, tell)


def extensions(options: RunOptions, directory: Path, told: Any = lambda text: None) -> dict[str, Extension]:
    """Return the extensions of a run's jobs, with the one that is asked for now.

    Raises:
        BadInput: the job cannot be extended so.
        StorageError: the run directory cannot be read.
    """
    asked = options.extend
    try:
        with storage():
            known = read_extensions(directory)
            if asked is None:
                return known
            return {**known, asked.job: extension_of(directory, asked.job, asked.epochs, asked.only_epochs, told)}
    except HarvestError as error:
        raise BadInput(str(error)) from error


def extended(jobs: Iterable[Job], directory: Path, options: RunOptions) -> tuple[Job, ...]:
    """Return a spec's jobs with the `stop` of those that are extended. Raises as `extensions`."""
    known, earlier = extensions(options, directory), extensions(RunOptions(options.spec), directory)
    return tuple(_longer(job, known[job.name], earlier.get(job.name)) if job.name in known else job for job in jobs)


def _longer(job: Job, extension: Extension, before: Extension | None) -> Job:
    values = job.model_dump(mode="json")
    own = before is not None and values["stop"] == before.stop  # the run's own spec has the earlier extension
    return Job.model_validate({**values, "stop": extension.stop if own else extension.of(values["stop"])})


def reopen(ledger: LiveState, directory: Path, journal: Iterable[events.Event]) -> dict[str, int]:
    """Let jobs that are extended since the last session wait for devices again; return until which epoch each trains.

    Args:
        journal: its events.
    """
    told = {event.job: event.epochs for event in journal if isinstance(event, events.Extended)}
    known = {job: extension.epochs for job, extension in read_extensions(directory).items() if job in ledger.jobs}
    new = {job: epochs for job, epochs in known.items() if told.get(job) != epochs}
    for job in new:
        if ledger.jobs[job].status == "done" or ledger.jobs[job].is_paused:
            ledger.take(events.Extended(job=job, epochs=known[job]))
    return new
