"""A run goes on only with the spec that it was begun with."""

from __future__ import annotations

import json
from typing import Any

from fleet.journal.directory import RunDirectory
from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import read_extensions
from fleet.spec import ABSENT, difference, results_mapping
from fleet.spec.digest import Difference
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import Runtime
from preprocess.files.writing import write_whole

_MOST_SHOWN = 12
_CHANGEABLE = ("metrics", "evaluation_batch_size")
"""Keys of a job that may change as a run goes on: no weight depends on them."""


def keep_to_spec(directory: RunDirectory, runtime: Runtime) -> None:
    """Hold the spec, without the jobs that were added, against that of the run's first start; write it down.

    Raises:
        BadInput: naming what differs.
    """
    mine, float32 = _mapping(directory, runtime), runtime.spec.determinism.float32
    if directory.spec.exists() and directory.journal.exists():
        theirs = {"rehearsal": False, **directory.read_spec()}  # the first runs could be none
        # In what older runs multiply, their checkpoints alone say.
        theirs["determinism"] = {**float32, **theirs.get("determinism", {})}
        differs = [found for found in difference(theirs, mine) if not _may_change(found)]
        if differs:
            shown = "\n  ".join(_told(found, directory) for found in differs[:_MOST_SHOWN])
            raise BadInput(
                f"--out {directory.path} holds a run of another spec:\n  {shown}\n"
                "name another directory, or take the change back to go on with that run"
            )
    write_whole(directory.spec, json.dumps(mine, indent=1))


def _may_change(found: Difference) -> bool:
    """Whether a run may go on with it: with more jobs, with more metrics, with other batches of evaluation."""
    section, job, *keys = [*found.parts, "", ""][:4]
    if section == "data" and not keys[0]:
        return found.first is ABSENT  # of jobs that are new
    if section not in ("jobs", "search"):
        return False
    if section == "jobs" and not keys[0]:
        return found.first is ABSENT
    key = next((part for part in found.parts[1:] if part in _CHANGEABLE), None)
    if key == "metrics":
        before, now = ([] if value is ABSENT else value for value in (found.first, found.second))
        return isinstance(before, list) and isinstance(now, list) and all(one in now for one in before)
    return key == "evaluation_batch_size" and found.parts[-1] == key


def _told(found: Difference, directory: RunDirectory) -> str:
    """A difference, and what to do where that is not the same for all."""
    if found.parts[0] != "jobs" or len(found.parts) < 2:
        return str(found)
    job, *keys = found.parts[1:]
    if not keys and found.second is ABSENT:
        return (
            f"job {job} is part of the run, and not of this spec; leave it there (one that is done trains no more), or "
            f"end it with `fleet stop {directory.path} {job}` and leave it there"
        )
    if keys == ["stop", "epochs"]:
        return f"{found}; `fleet extend {directory.path} {job} --epochs {found.second}` trains it longer"
    if keys == ["metrics"]:
        return f"{found}; metrics may be added, and none taken away"
    return str(found)


def write_chosen(directory: RunDirectory, runtime: Runtime) -> None:
    """Write the spec down anew, once numbers that it left open are chosen."""
    write_whole(directory.spec, json.dumps(_mapping(directory, runtime), indent=1))


def _mapping(directory: RunDirectory, runtime: Runtime) -> dict[str, Any]:
    """What decides the results of the run, without the jobs that were added."""
    added = {job["name"] for job in AddedJobs(directory.path).taken()}
    own = runtime.spec.with_jobs(tuple(job for job in runtime.spec.jobs if job.name not in added))
    mine = results_mapping(own)
    for name, extension in read_extensions(directory.path).items():
        if name in mine["jobs"] and mine["jobs"][name]["stop"] == extension.stop:
            mine["jobs"][name]["stop"] = dict(extension.before)
    mine["determinism"] = {**mine.get("determinism", {}), **own.determinism.float32}
    mine["rehearsal"] = runtime.rehearsal is not None
    return mine
