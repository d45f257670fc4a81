"""A run goes on only with the spec that it was begun with."""

from __future__ import annotations

import json

from fleet.run.bad_input import BadInput
from fleet.run.ranks.runtime import Runtime
from fleet.run_directory.added_jobs import AddedJobs
from fleet.run_directory.directory import RunDirectory
from fleet.run_directory.whole_files import write_whole
from fleet.spec import difference, results_mapping

_MOST_SHOWN = 12


def keep_to_spec(directory: RunDirectory, runtime: Runtime) -> None:
    """Hold the spec, without the jobs that were added, against that of the run's first start; write it down.

    Raises:
        BadInput: naming what differs.
    """
    added = {job["name"] for job in AddedJobs(directory.path).taken()}
    own = runtime.spec.with_jobs(tuple(job for job in runtime.spec.jobs if job.name not in added))
    mine, float32 = results_mapping(own), own.determinism.float32
    mine["determinism"] = {**mine.get("determinism", {}), **float32}
    mine["rehearsal"] = runtime.rehearsal is not None
    if directory.spec.exists() and directory.journal.exists():
        theirs = {"rehearsal": False, **json.loads(directory.spec.read_text())}  # the first runs could be none
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
