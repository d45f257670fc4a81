"""A run goes on only with the spec that it was begun with."""

from __future__ import annotations

import json
from typing import Any

from fleet.run.bad_input import BadInput
from fleet.run.ranks.runtime import Runtime
from fleet.run_directory.added_jobs import AddedJobs
from fleet.run_directory.directory import RunDirectory
from fleet.run_directory.extensions import read_extensions
from fleet.spec import difference, results_mapping
from preprocess.files.writing import write_whole

_MOST_SHOWN = 12


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
        differs = [str(found) for found in difference(theirs, mine)]
        if differs:
            shown = "\n  ".join(differs[:_MOST_SHOWN])
            raise BadInput(
                f"--out {directory.path} holds a run of another spec:\n  {shown}\n"
                "name another directory, or take the change back to go on with that run"
            )
    write_whole(directory.spec, json.dumps(mine, indent=1))


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
