"""`fleet add`: one job more, or several, for a run that goes on or stands still."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fleet.commands.arguments import RunFolder
from fleet.commands.ending import end, mendable
from fleet.machine.launch.exit_codes import BAD_INPUT
from fleet.run_directory.added_jobs import AddedJobs
from fleet.run_directory.ensemble_file import EnsembleFile
from fleet.run_directory.lock import NAME, Watch

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.1


def add(
    directory: RunFolder,
    job: Annotated[
        Path, typer.Argument(help="YAML: a job as in a spec, or jobs: and defaults:", metavar="JOB", show_default=False)
    ],
) -> None:
    """Add jobs to a run: while it goes on it takes them in; otherwise its next start does.

    Exit codes: 0 taken in, or left for the run to take in; 2 bad input.
    """
    from fleet.spec import SpecError

    known = EnsembleFile.read(directory)
    if known is None:
        end(BAD_INPUT, f"{directory} holds no run that was started: there is no ensemble.json in it; name its --out")
    added = AddedJobs(directory)
    with mendable(SpecError):
        jobs = _read(job, known, added)
    for entry in jobs:
        added.offer(entry)
    names = [entry["name"] for entry in jobs]
    watch = Watch(directory / NAME)
    if watch.holder() is None:
        print(f"{', '.join(names)}: left in {directory}; the run stands still, its next start trains them too")
        return
    _await(added, names, directory, watch)


def _read(path: Path, known: EnsembleFile, added: AddedJobs) -> list[dict[str, Any]]:
    """The file's jobs, all keys written out; SpecError with all that is wrong with them."""
    from fleet.run.ranks.runtime import data_key
    from fleet.spec import SpecError, check, load_jobs

    spec = load_jobs(path, known.spec, Path(known.folder))
    taken = {entry["name"] for entry in known.spec["jobs"]} | added.names()
    problems = list(check(spec, known.lengths))
    for position, entry in enumerate(spec.jobs):
        if entry.name in taken:
            problems.append(
                spec.origins.problem(
                    ("jobs", position, "name"), entry.name, "the run has a job of this name", mend="choose another"
                )
            )
        if data_key(entry) not in known.lengths:
            open_now = ", ".join(known.lengths)
            rule = f"none of the data sets that the run has open: {open_now}"
            mend = "use one of them, or begin a run of its own"
            problems.append(
                spec.origins.problem(("jobs", position, "data"), data_key(entry), rule, next(iter(known.lengths)), mend)
            )
    if problems:
        raise SpecError(problems, str(path))
    mapping: Mapping[str, Any] = spec.to_mapping()
    return list(mapping["jobs"])


def _await(added: AddedJobs, names: list[str], directory: Path, watch: Watch) -> None:
    """Wait until the run has answered for all, and tell; it may end meanwhile."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(added.verdict(name) is None for name in names):
        if watch.holder() is None:
            print(f"the run has just ended; its next start trains {', '.join(names)}")
            return
        if time.monotonic() > deadline:
            waiting = ", ".join(name for name in names if added.verdict(name) is None)
            print(
                f"{waiting}: left in {directory}; rank 0 has not answered for {_PATIENCE_SECONDS:.0f} s. It takes jobs "
                "in when it has measured rates, and when its rings have room, as another job has ended"
            )
            return
        time.sleep(_POLL_SECONDS)
    refused = {name: why for name in names if (why := added.verdict(name))}
    taken = [name for name in names if name not in refused]
    if taken:
        print(f"{', '.join(taken)}: taken in")
    if refused:
        end(BAD_INPUT, "; ".join(f"job {name} was refused: {why}" for name, why in refused.items()))
