"""A job as its run trained it, by what the run directory says."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from fleet.run.bad_input import BadInput
from fleet.run_directory.added_jobs import AddedJobs
from fleet.run_directory.directory import RunDirectory
from fleet.run_directory.ensemble_file import EnsembleFile
from fleet.run_directory.journal import read_journal
from fleet.spec import EnsembleSpec, Job
from preprocess import HELD_OUT, TRAIN
from trainers import file_name, latest_good


@dataclass(frozen=True)
class RecordedJob:
    """What a replay of a job needs to know.

    Attributes:
        directory: the run's.
        spec: the ensemble's, with the jobs that were added to it.
        name: the job's.
        batch_size: samples of a virtual worker in a step, as the policy chose it.
    """

    directory: RunDirectory
    spec: EnsembleSpec
    name: str
    batch_size: int

    @classmethod
    def read(cls, directory: Path, name: str) -> RecordedJob:
        """Find the job.

        Raises:
            BadInput: the folder holds no run, or the run has no such job.
            SpecError: what is written there is no spec any more.
        """
        known = EnsembleFile.read(directory)
        if known is None:
            text = f"{directory} holds no run that was started: there is no ensemble.json in it"
            raise BadInput(f"{text}; name the --out of a `fleet run`")
        own = {job["name"] for job in known.spec["jobs"]}
        jobs = [*known.spec["jobs"], *(job for job in AddedJobs(directory).taken() if job["name"] not in own)]
        spec = EnsembleSpec.from_mapping({**known.spec, "jobs": jobs}, folder=Path(known.folder))
        names = [job.name for job in spec.jobs]
        if name not in names:
            meant = get_close_matches(name, names, n=1)
            ask = f"; did you mean {meant[0]}?" if meant else f"; it has {', '.join(sorted(names)[:10])}"
            raise BadInput(f"the run in {directory} has no job {name}{ask}")
        return cls(RunDirectory(directory), spec, name, _batch_size(directory, spec.job(name)))

    @property
    def job(self) -> Job:
        """The job, with the batch that it trained with."""
        return self.spec.job(self.name).model_copy(update={"batch_size": self.batch_size, "batch_range": None})

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where its modules lie."""
        return (self.spec.folder, Path.cwd())

    def skipped(self, data: str) -> dict[str, tuple[int, ...]]:
        """The samples of a data set that could not be read, by their kind; the run takes others in their place."""
        found: dict[str, set[int]] = {TRAIN: set(), HELD_OUT: set()}
        for event in read_journal(self.directory.journal):
            if event["event"] == "skipped" and event["data"] == data and event["stage"] == "source":
                found[event["kind"]].add(event["sample"])
        return {kind: tuple(sorted(samples)) for kind, samples in found.items()}


def _batch_size(directory: Path, job: Job) -> int:
    """The batch of a virtual worker: what the journal says was chosen, else what the spec says."""
    chosen = [
        event["batch"] // job.virtual_workers
        for event in read_journal(RunDirectory(directory).journal)
        if event["event"] == "batch" and event["job"] == job.name
    ]
    return chosen[-1] if chosen else job.batch_size


def newest_checkpoint(recorded: RecordedJob) -> tuple[Path, int]:
    """The run's newest whole checkpoint of the job, and the steps that the job had done then.

    Raises:
        BadInput: there is none.
    """
    folder = recorded.directory.checkpoints(recorded.name)
    found, _ = latest_good(folder)
    if found is None:
        raise BadInput(f"{folder} holds no checkpoint that is whole: let the run train job {recorded.name} first")
    return folder / file_name(found), found.steps
