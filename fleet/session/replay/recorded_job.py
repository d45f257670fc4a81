"""A job as its run trained it, by what the run directory says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import read_journal
from fleet.models.errors import HarvestError
from fleet.models.recorded_spec import recorded_job, recorded_spec
from fleet.session.opening.fingerprints import changes_on_disk
from fleet.spec import EnsembleSpec, Job
from fleet.workers.agreement import BadInput
from preprocess.files.modules import at_home
from preprocess.samples.order import HELD_OUT, TRAIN
from trainers import file_name, latest_good
from trainers.task.batch_plan import BatchChange, BatchSchedule


@dataclass(frozen=True)
class ReplayedJob:
    """What a replay of a job needs to know.

    Attributes:
        directory: the run's.
        spec: the ensemble's, with the jobs that were added to it.
        name: the job's.
        batch_size: samples of a virtual worker in a step: the policy's choice at the start, or the job's own.
        changes: the batch had them, as the journal says.
    """

    directory: RunDirectory
    spec: EnsembleSpec
    name: str
    batch_size: int
    changes: tuple[BatchChange, ...] = ()

    @classmethod
    def read(cls, directory: Path, name: str) -> ReplayedJob:
        """Find the job.

        Raises:
            BadInput: the folder holds no run, or the run has no such job.
            SpecError: what is written there is no spec any more.
        """
        try:
            spec = recorded_spec(directory)
            job = recorded_job(spec, directory, name)
        except HarvestError as error:
            raise BadInput(str(error)) from error
        _check_alone(directory, name)
        return cls(RunDirectory(directory), spec, name, *_batches(directory, job))

    @property
    def job(self) -> Job:
        """The job, with the batch that it began with."""
        return self.spec.job(self.name).model_copy(update={"batch_size": self.batch_size, "batch_range": None})

    def batches(self, samples: int) -> BatchSchedule | None:
        """Which batch each of its epochs had, of so many samples; None: it is a job whose batch does not change."""
        asked = self.job.batch
        if asked is None:
            return None
        schedule = BatchSchedule(self.batch_size, asked.learning_rate, asked.warm_up, samples)
        for change in self.changes:
            schedule = schedule.changed(change)
        return schedule

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where its modules lie."""
        return (self.spec.folder, Path.cwd())

    @property
    def unlike(self) -> list[str]:
        """What of its data and code changed while it trained, or since, a sentence each."""
        found = [
            f"{change.what}: accepted, so that it was trained on that from epoch {change.jobs[self.name] + 1} on"
            for event in read_journal(self.directory.journal)
            if isinstance(event, events.Fingerprints)
            for change in event.accepted
            if self.name in change.jobs
        ]
        with at_home(self.spec.folder):
            now = changes_on_disk(self.directory.journal.absolute(), self.spec)
        return found + [f"{change.what} since the run" for change in now if self.name in change.jobs]

    def skipped(self, data: str) -> dict[str, tuple[int, ...]]:
        """The samples of a data set that could not be read, by their kind; the run takes others in their place."""
        found: dict[str, set[int]] = {TRAIN: set(), HELD_OUT: set()}
        for event in read_journal(self.directory.journal):
            if isinstance(event, events.Skipped) and event.data == data and event.stage == "source":
                found[event.kind].add(event.sample)
        return {kind: tuple(sorted(samples)) for kind, samples in found.items()}


def _batches(directory: Path, job: Job) -> tuple[int, tuple[BatchChange, ...]]:
    """The batch of a virtual worker as a job began, and how it changed, by what the journal says was chosen.

    A job that began an epoch again, as its ranks were lost, has no changes after that.
    """
    size, changes = job.batch_size, list[BatchChange]()
    for event in read_journal(RunDirectory(directory).journal):
        if not isinstance(event, (events.Batch, events.Started)) or event.job != job.name:
            continue
        since = event.epoch or 0
        changes = [change for change in changes if change.epoch <= since]
        if isinstance(event, events.Batch):
            chosen = event.batch // job.virtual_workers
            if job.batch is None:
                size = chosen
            else:
                change = BatchChange(since, chosen, event.parts or 1)
                changes = [*(each for each in changes if each.epoch < change.epoch), change]
    return size, tuple(changes)


def newest_checkpoint(recorded: ReplayedJob) -> tuple[Path, int]:
    """The run's newest whole checkpoint of the job, and the steps that the job had done then.

    Raises:
        BadInput: there is none.
    """
    folder = recorded.directory.checkpoints(recorded.name)
    found, _ = latest_good(folder)
    if found is None:
        raise BadInput(f"{folder} holds no checkpoint that is whole: let the run train job {recorded.name} first")
    return folder / file_name(found), found.steps


def _check_alone(directory: Path, name: str) -> None:
    """BadInput if the job went on from another one's weights, so that it cannot be trained alone."""
    for event in read_journal(RunDirectory(directory).journal):
        if isinstance(event, events.Decided) and event.job == name and event.copy is not None:
            raise BadInput(
                f"{name} went on from trial {event.copy.donor} after {event.start} epochs, as its population wanted, "
                "so it cannot be trained alone; the journal's events `search` tell its lineage, and the same spec in "
                "another directory trains all of it again"
            )
