"""`fleet stop`: a run ends in good order, or some of its jobs do while the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.commands.arguments import RunFolder
from fleet.commands.ending import end
from fleet.machine.launch.launched import BAD_INPUT, STOPPED

if TYPE_CHECKING:
    from fleet.journal.lock import LockWatch
    from fleet.journal.run_requests import StopRequests
    from fleet.report.journal_scan import JournalScan

_POLL_SECONDS = 0.2
_OVER = ("halted", "pruned", "done", "failed")


def stop(
    directory: RunFolder,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="JOB", help="only these; default: the run")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="take jobs up again that were stopped by name")] = False,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="how long to wait for its answer")] = 120.0,
) -> None:
    """Stop a run at its next step, with all checkpoints written; or stop the named jobs, and let others go on.

    It leaves word in the run directory, so it works from a login node. A run that was stopped goes on with the same
    `fleet run`. A job that was stopped by name stays stopped, until `fleet stop DIR JOB --undo`. Exit codes: 0 it has
    stopped, or nothing of it runs; 2 bad input; 75 the run has not answered yet.
    """
    from fleet.journal.lock import NAME, LockWatch
    from fleet.journal.run_requests import StopRequests
    from fleet.report.journal_scan import JournalScan

    watch, wishes, scan = LockWatch(directory / NAME), StopRequests(directory), JournalScan()
    if undo and not jobs:
        end(BAD_INPUT, "--undo takes up jobs that were stopped by name: name them; a run that was stopped goes on with "
            "its `fleet run`")  # fmt: skip
    if not (directory / "journal.jsonl").is_file() and watch.holder() is None:
        from fleet.journal.directory import no_run

        end(BAD_INPUT, no_run(directory))
    if jobs:
        _read(scan, directory)
        _check(jobs, scan, directory)
        _stop_jobs(jobs, undo, _Asked(directory, watch, wishes, scan, wait))
    else:
        _stop_run(_Asked(directory, watch, wishes, scan, wait))


class _Asked:
    """A run that is asked for something: its directory, and how long to wait for it."""

    def __init__(self, directory: Path, watch: LockWatch, wishes: StopRequests, scan: JournalScan, wait: float) -> None:
        self.directory, self.watch, self.wishes, self.scan, self.wait = directory, watch, wishes, scan, wait

    def until(self, done: Callable[[], bool]) -> bool:
        """Whether it has done that within the time; what it waits for is looked at now and then."""
        limit = time.monotonic() + self.wait
        while not done():
            if time.monotonic() >= limit:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def _stop_run(asked: _Asked) -> None:
    holder = asked.watch.holder()
    if holder is None:
        print(f"nobody runs {asked.directory}: there is nothing to stop; its `fleet run` goes on with it")
        return
    asked.wishes.stop_run(holder)

    def gone() -> bool:
        now = asked.watch.holder()
        return now is None or not now.is_same(holder)

    if asked.until(gone):
        asked.wishes.forget_run()
        print(f"{asked.directory} has stopped, and its checkpoints are written; the same `fleet run` goes on with it")
    elif asked.wishes.is_open:
        text = f"{holder} has not seen within {asked.wait:g} s that it is to stop; it looks for that between two"
        end(STOPPED, f"{text} measurements or events, so wait longer with --wait; see `fleet status {asked.directory}`")
    else:
        end(STOPPED, f"{holder} is stopping: its networks finish their step, and are saved; see `fleet status`")


def _stop_jobs(jobs: Sequence[str], undo: bool, asked: _Asked) -> None:
    for job in jobs:
        if undo:
            asked.wishes.take_up(job)
        else:
            asked.wishes.stop_job(job)

    def answered() -> bool:
        _read(asked.scan, asked.directory)
        return asked.watch.holder() is None or not _open(jobs, undo, asked.scan)

    asked.until(answered)
    statuses, open_ = _statuses(asked.scan), _open(jobs, undo, asked.scan)
    for job in jobs:
        if job not in open_:
            print(f"{job}: {_told(statuses[job], undo, asked.directory, job)}")
    if open_ and asked.watch.holder() is None:
        what = "takes it up" if undo else "leaves it stopped"
        print(f"{', '.join(open_)}: nobody runs {asked.directory} now; its next start {what}")
    elif open_:
        end(STOPPED, f"{', '.join(open_)}: rank 0 has not answered within {asked.wait:g} s; the wish stays there")


def _told(status: str, undo: bool, directory: Path, job: str) -> str:
    if status in ("done", "failed"):
        return f"it is {status} already" if status == "done" else "it has failed already"
    if status == "pruned":
        return "its search has stopped it already"
    if undo:
        return "goes on"
    return f"stopped, and its checkpoint is written; `fleet stop {directory} {job} --undo` takes it up again"


def _open(jobs: Sequence[str], undo: bool, scan: JournalScan) -> list[str]:
    """Those of which the journal does not say yet what is wished."""
    statuses = _statuses(scan)
    return [job for job in jobs if (statuses[job] == "halted" if undo else statuses[job] not in _OVER)]


def _statuses(scan: JournalScan) -> dict[str, str]:
    return {job.name: job.status for job in scan.jobs.values()}


def _read(scan: JournalScan, directory: Path) -> None:
    scan.read(directory / "journal.jsonl")


def _check(jobs: Sequence[str], scan: JournalScan, directory: Path) -> None:
    """End with all names that the run does not have."""
    from fleet.spec.problem import nearest  # only a mistake waits for the reading of specs

    known = list(_statuses(scan))
    wrong = [job for job in jobs if job not in known]
    said = []
    for job in wrong:
        near = nearest(job, known)
        said.append(f"{directory} has no job {job}" + (f"; did you mean {near}?" if near else ""))
    if said:
        end(BAD_INPUT, "\n".join(said))
