"""`fleet add`, `fleet change` and `fleet stop`: what is asked of a run that goes on, or of its next start."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.arguments import AcceptChanges, RunFolder
from fleet.commands.entry import end, mendable
from fleet.journal.lock import NAME, LockWatch
from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import EnsembleFile
from fleet.machine.launch.launched import BAD_INPUT, FAILED, STOPPED

if TYPE_CHECKING:
    from fleet.journal.events import Bounds
    from fleet.journal.lock import LockWatch
    from fleet.journal.run_requests import StopRequests
    from fleet.report.journal_scan import JournalScan


_POLL_SECONDS = 0.1
_Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="how long to wait for the run's answer")]
_Deadline = Annotated[
    str | None,
    typer.Option(metavar="SECONDS|TIME", help="promise it, or say no: seconds from now on, or 2026-12-01T08:00"),
]


def add(
    directory: RunFolder,
    job: Annotated[
        Path, typer.Argument(help="YAML: a job as in a spec, or jobs: and defaults:", metavar="JOB", show_default=False)
    ],
    deadline: _Deadline = None,
    wait: _Wait = 120.0,
    accept_changes: AcceptChanges = False,
) -> None:
    """Add jobs to a run: while it goes on it takes them in; otherwise its next start does.

    Jobs with a deadline are measured before it is promised. Exit codes: 0 promised, or without a deadline taken in, or
    left for the run to take in; 1 cannot be promised; 2 bad input; 75 no word about the deadline yet (ask again with
    the same command).
    """
    from fleet.spec import SpecError
    from fleet.spec.values import due

    known = EnsembleFile.read(directory)
    if known is None:
        end(BAD_INPUT, f"{directory} holds no run that was started: there is no ensemble.json in it; name its --out")
    added = AddedJobs(directory)
    with mendable(SpecError, ValueError):
        jobs = _jobs_to_add(job, known, added, None if deadline is None else due(deadline))
    if not accept_changes:
        _check_unchanged(directory, known)
    for entry in jobs:
        if not added.has(entry):
            added.offer(entry)
    if not jobs:
        return
    promised = {entry["name"] for entry in jobs if entry["deadline"] is not None}
    _await(added, [entry["name"] for entry in jobs], promised, directory, wait)


def _jobs_to_add(
    path: Path, known: EnsembleFile, added: AddedJobs, deadline: float | str | None
) -> list[dict[str, Any]]:
    """The file's jobs, all keys written out, with this deadline if there is one; SpecError with all that is wrong."""
    from fleet.spec import SpecError, check, load_jobs
    from fleet.spec.job import data_key

    spec = load_jobs(path, known.spec, Path(known.folder))
    if deadline is not None:
        spec = spec.with_jobs(tuple(entry.model_copy(update={"deadline": deadline}) for entry in spec.jobs))
    mapping: Mapping[str, Any] = spec.to_mapping()
    again = {entry["name"] for entry in mapping["jobs"] if added.has(entry)}
    there = {entry["name"]: entry for entry in known.spec["jobs"]}
    taken = there.keys() | added.names()
    same = {entry["name"] for entry in mapping["jobs"] if there.get(entry["name"]) == entry}
    problems = list(check(spec, known.lengths))
    for position, entry in enumerate(spec.jobs):
        if entry.name in taken - again - same:
            problems.append(
                spec.origins.problem(
                    ("jobs", position, "name"), entry.name, "the run has a job of this name", mend="choose another"
                )
            )
        for key, asked in (("virtual_workers", entry.auto_workers), ("batch_size", entry.largest_batch)):
            if asked:
                rule, mend = "is chosen when a run first starts, and this one has", "give the job a number"
                value = mapping["jobs"][position][key]
                problems.append(spec.origins.problem(("jobs", position, key), value, rule, mend=mend))
        if data_key(entry) not in known.lengths:
            open_now = ", ".join(known.lengths)
            rule = f"none of the data sets that the run has open: {open_now}"
            mend = "use one of them, or begin a run of its own"
            problems.append(
                spec.origins.problem(("jobs", position, "data"), data_key(entry), rule, next(iter(known.lengths)), mend)
            )
    if problems:
        raise SpecError(problems, str(path))
    if same:
        print(f"{', '.join(sorted(same))}: the run has {'it' if len(same) == 1 else 'them'}")
    return [entry for entry in mapping["jobs"] if entry["name"] not in same]


def _check_unchanged(directory: Path, known: EnsembleFile) -> None:
    """End if the files of the run's data, or its code, are not what it was trained on."""
    from fleet.models.provenance import changes_on_disk, refusal
    from fleet.spec import EnsembleSpec
    from preprocess.files.modules import at_home

    spec, journal = EnsembleSpec.from_mapping(known.spec, folder=known.folder), directory.absolute() / "journal.jsonl"
    with at_home(known.folder):
        changes = changes_on_disk(journal, spec)
    if changes:
        end(BAD_INPUT, refusal(directory, changes))


def _await(added: AddedJobs, names: list[str], promised: Collection[str], directory: Path, wait: float) -> None:
    """Wait until the run has answered for all, and tell; it may stand still, or end meanwhile.

    Args:
        promised: those of `names` whose deadlines are to be promised.
        wait: seconds.
    """
    watch, end_of_wait, told = LockWatch(directory / NAME), time.monotonic() + wait, "stands still"
    while open_ := [name for name in names if not _is_answered(added, name, name in promised)]:
        if watch.holder() is None:
            print(f"{', '.join(open_)}: left in {directory}; the run {told}, its next start trains them too")
            break
        if time.monotonic() > end_of_wait:
            print(
                f"{', '.join(open_)}: left in {directory}; rank 0 has not answered for {wait:g} s. It takes jobs in "
                "when it has measured rates, and when its rings have room, as another job has ended; those with a "
                "deadline are measured first, as soon as a device can be spared"
            )
            break
        told = "has just ended"
        time.sleep(_POLL_SECONDS)
    _tell_added(added, [name for name in names if name not in open_], promised)
    if waiting := [name for name in open_ if name in promised]:
        end(
            STOPPED, f"nobody has said yet whether the deadline of {', '.join(waiting)} is met; ask again: same command"
        )


def _is_answered(added: AddedJobs, name: str, promised: bool) -> bool:
    verdict = added.verdict(name)
    return bool(verdict) or (verdict is not None and (not promised or added.decision(name) is not None))


def _tell_added(added: AddedJobs, names: list[str], promised: Collection[str]) -> None:
    """Say what became of jobs that were answered for; end with a code of its own if one got a no."""
    refused = {name: why for name in names if (why := added.verdict(name))}
    taken = [name for name in names if name not in refused]
    told = {name: decision for name in taken if name in promised and (decision := added.decision(name)) is not None}
    kept = [name for name, (promise, _) in told.items() if promise]
    plain = [name for name in taken if name not in told]
    for which, what in ((plain, "taken in"), (kept, "taken in, and promised the deadline")):
        if which:
            print(f"{', '.join(which)}: {what}")
    broken = [f"the deadline of {name} is not promised: {why}" for name, (promise, why) in told.items() if not promise]
    said_no = [f"job {name} was refused: {why}" for name, why in refused.items()]
    if said_no or broken:
        end(BAD_INPUT if said_no else FAILED, "; ".join([*said_no, *broken]))


_Trials = Annotated[int | None, typer.Option(help="how many trials there may be in all")]
_Width = Annotated[int | None, typer.Option(help="trials under way at a time, in virtual time")]
_Epochs = Annotated[int | None, typer.Option(help="how many epochs all trials together may train")]
_Hours = Annotated[float | None, typer.Option(help="hours of the run, all its starts together")]


def change(
    directory: RunFolder,
    trials: _Trials = None,
    width: _Width = None,
    epochs: _Epochs = None,
    hours: _Hours = None,
    wait: _Wait = 120.0,
) -> None:
    """Give a run's search other bounds, while it goes on or for its next start; what it decided stays.

    Exit codes: 0 it goes by them, or its next start will; 2 bad input; 75 the run has not answered yet.
    """
    from fleet.session.from_python import attach

    asked = {"trials": trials, "width": width, "epochs": epochs, "hours": hours}
    with mendable():
        run = attach(directory)
        request = run.change(**{name: bound for name, bound in asked.items() if bound is not None})
    limit = time.monotonic() + wait
    while (taken := _taken_in(directory, request)) is None and not run.wait(0):
        if time.monotonic() >= limit:
            end(STOPPED, f"rank 0 has not answered within {wait:g} s; the request stays in {directory}")
        time.sleep(_POLL_SECONDS)
    if taken is None and (taken := _taken_in(directory, request)) is None:
        print(f"nobody runs {directory} now; its next start goes by that")
    else:
        print(f"the search goes by that from virtual time {taken.time} on")


def _taken_in(directory: Path, request: int) -> Bounds | None:
    """The event that says that the run has taken the request in; None: there is none."""
    from fleet.journal.events import Bounds
    from fleet.journal.journal import read_journal

    told = (event for event in read_journal(directory / "journal.jsonl") if isinstance(event, Bounds))
    return next((event for event in told if event.wish == request), None)


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

    watch, requests, scan = LockWatch(directory / NAME), StopRequests(directory), JournalScan()
    if undo and not jobs:
        end(
            BAD_INPUT,
            "--undo takes up jobs that were stopped by name: name them; a run that was stopped goes on with "
            "its `fleet run`",
        )
    if not (directory / "journal.jsonl").is_file() and watch.holder() is None:
        from fleet.journal.directory import no_run

        end(BAD_INPUT, no_run(directory))
    if jobs:
        scan.read(directory / "journal.jsonl")
        _check_jobs(jobs, scan, directory)
        _stop_jobs(jobs, undo, _Asked(directory, watch, requests, scan, wait))
    else:
        _stop_run(_Asked(directory, watch, requests, scan, wait))


class _Asked:
    """A run that is asked for something: its directory, and how long to wait for it."""

    def __init__(
        self, directory: Path, watch: LockWatch, requests: StopRequests, scan: JournalScan, wait: float
    ) -> None:
        self.directory, self.watch, self.requests, self.scan, self.wait = directory, watch, requests, scan, wait

    def until(self, done: Callable[[], bool]) -> bool:
        """Return whether it has done that within the time; what it waits for is looked at now and then."""
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
    asked.requests.stop_run(holder)

    def gone() -> bool:
        now = asked.watch.holder()
        return now is None or not now.is_same(holder)

    if asked.until(gone):
        asked.requests.forget_run()
        print(f"{asked.directory} has stopped, and its checkpoints are written; the same `fleet run` goes on with it")
    elif asked.requests.is_open:
        text = f"{holder} has not seen within {asked.wait:g} s that it is to stop; it looks for that between two"
        end(STOPPED, f"{text} measurements or events, so wait longer with --wait; see `fleet status {asked.directory}`")
    else:
        end(STOPPED, f"{holder} is stopping: its networks finish their step, and are saved; see `fleet status`")


def _stop_jobs(jobs: Sequence[str], undo: bool, asked: _Asked) -> None:
    for job in jobs:
        if undo:
            asked.requests.take_up(job)
        else:
            asked.requests.stop_job(job)

    def answered() -> bool:
        asked.scan.read(asked.directory / "journal.jsonl")
        return asked.watch.holder() is None or not _unanswered(jobs, undo, asked.scan)

    asked.until(answered)
    statuses, open_ = _statuses(asked.scan), _unanswered(jobs, undo, asked.scan)
    for job in jobs:
        if job not in open_:
            print(f"{job}: {_stopped_text(statuses[job], undo, asked.directory, job)}")
    if open_ and asked.watch.holder() is None:
        what = "takes it up" if undo else "leaves it stopped"
        print(f"{', '.join(open_)}: nobody runs {asked.directory} now; its next start {what}")
    elif open_:
        end(STOPPED, f"{', '.join(open_)}: rank 0 has not answered within {asked.wait:g} s; the request stays there")


def _stopped_text(status: str, undo: bool, directory: Path, job: str) -> str:
    if status in ("done", "failed"):
        return f"it is {status} already" if status == "done" else "it has failed already"
    if status == "pruned":
        return "its search has stopped it already"
    if undo:
        return "goes on"
    return f"stopped, and its checkpoint is written; `fleet stop {directory} {job} --undo` takes it up again"


def _unanswered(jobs: Sequence[str], undo: bool, scan: JournalScan) -> list[str]:
    """Those of which the journal does not say yet what is asked for."""
    statuses = _statuses(scan)
    return [job for job in jobs if (statuses[job] == "halted" if undo else statuses[job] not in _OVER)]


def _statuses(scan: JournalScan) -> dict[str, str]:
    return {job.name: job.status for job in scan.jobs.values()}


def _check_jobs(jobs: Sequence[str], scan: JournalScan, directory: Path) -> None:
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
