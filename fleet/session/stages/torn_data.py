"""Data of which a sample cannot be made: the networks that read them have failed, and the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleet.coordination.failures import FailedJobsError, TornDataError
from fleet.journal import events
from fleet.session.stages.opened import Opened
from fleet.spec.job import data_key
from preprocess.samples.errors import CorruptLimitError


def data_in_use(opened: Opened) -> list[str]:
    """The data sets that unfinished jobs read, or trials to come; where all are done, those that these read; sorted."""
    runtime, ledger = opened.rank.runtime, opened.books.ledger
    if opened.searching is not None:
        return sorted(runtime.facts)
    jobs = ledger.unfinished or [job for job in ledger.jobs.values() if job.status != "failed"]
    return sorted({data_key(runtime.job(job.name)) for job in jobs})


@contextmanager
def readers_fail(opened: Opened) -> Iterator[None]:
    """Let the jobs fail whose data are torn, if there are others: all ranks are started again, and go on without them.

    Raises:
        FailedJobsError: so it is.
        TornDataError, CorruptLimitError: all jobs that are left read these data, or the trials to come do.
    """
    try:
        yield
    except (TornDataError, CorruptLimitError) as error:
        ledger, runtime = opened.books.ledger, opened.rank.runtime
        left = [job.name for job in ledger.unfinished]
        readers = [name for name in left if data_key(runtime.job(name)) == error.data]
        if opened.searching is not None or not readers or len(readers) == len(left):
            raise
        lines = error.lines if isinstance(error, TornDataError) else ""
        for name in readers:
            opened.books.keeper.record(
                events.Failed(
                    job=name,
                    devices=ledger.running.get(name, ()),
                    epoch=ledger.jobs[name].epoch,
                    error=str(error),
                    traceback=lines,
                    cost_ranks=True,
                )
            )
        raise FailedJobsError(str(error), *readers) from error
