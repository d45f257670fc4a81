"""`fleet add`: one job more, or several, for a run that goes on or stands still."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.commands.arguments import AcceptChanges, RunFolder
from fleet.commands.ending import end, mendable
from fleet.journal.lock import NAME, LockWatch
from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import EnsembleFile
from fleet.machine.launch.launched import BAD_INPUT, FAILED, STOPPED

_POLL_SECONDS = 0.1

_Deadline = Annotated[
    str | None,
    typer.Option(metavar="SECONDS|TIME", help="promise it, or say no: seconds from now on, or 2026-12-01T08:00"),
]
_Wait = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="how long to wait for the run's answer")]


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
        jobs = _read(job, known, added, None if deadline is None else due(deadline))
    if not accept_changes:
        _check_unchanged(directory, known)
    for entry in jobs:
        if not added.has(entry):
            added.offer(entry)
    if not jobs:
        return
    promised = {entry["name"] for entry in jobs if entry["deadline"] is not None}
    _await(added, [entry["name"] for entry in jobs], promised, directory, wait)


def _read(path: Path, known: EnsembleFile, added: AddedJobs, deadline: float | str | None) -> list[dict[str, Any]]:
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
    _tell(added, [name for name in names if name not in open_], promised)
    if waiting := [name for name in open_ if name in promised]:
        end(
            STOPPED, f"nobody has said yet whether the deadline of {', '.join(waiting)} is met; ask again: same command"
        )


def _is_answered(added: AddedJobs, name: str, promised: bool) -> bool:
    verdict = added.verdict(name)
    return bool(verdict) or (verdict is not None and (not promised or added.decision(name) is not None))


def _tell(added: AddedJobs, names: list[str], promised: Collection[str]) -> None:
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
