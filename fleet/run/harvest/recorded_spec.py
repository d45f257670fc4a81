"""The spec of a run, as its directory tells it."""

from __future__ import annotations

from pathlib import Path

from fleet.run.harvest.errors import HarvestError
from fleet.run_directory.added_jobs import AddedJobs
from fleet.run_directory.ensemble_file import EnsembleFile
from fleet.spec import EnsembleSpec, Job
from fleet.spec.problem import nearest

_MOST_NAMES = 10


def recorded_spec(directory: Path) -> EnsembleSpec:
    """Read the spec of the run in a directory, with the jobs that were added to it.

    Raises:
        HarvestError: the folder holds no run.
        SpecError: what is written there is no spec any more.
    """
    known = EnsembleFile.read(directory)
    if known is None:
        text = f"{directory} holds no run that was started: there is no ensemble.json in it"
        raise HarvestError(f"{text}; name the --out of a `fleet run`")
    own = {job["name"] for job in known.spec["jobs"]}
    jobs = [*known.spec["jobs"], *(job for job in AddedJobs(directory).taken() if job["name"] not in own)]
    return EnsembleSpec.from_mapping({**known.spec, "jobs": jobs}, folder=Path(known.folder))


def recorded_job(spec: EnsembleSpec, directory: Path, name: str) -> Job:
    """Return the job of this name.

    Raises:
        HarvestError: there is none; the text names the nearest.
    """
    names = [job.name for job in spec.jobs]
    if name in names:
        return spec.job(name)
    meant = nearest(name, names)
    ask = f"; did you mean {meant}?" if meant else f"; it has {', '.join(sorted(names)[:_MOST_NAMES])}"
    raise HarvestError(f"the run in {directory} has no job {name}{ask}")
