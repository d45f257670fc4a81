"""The first stage of a session: its input is checked, and the run directory is its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.journal.directory import RunDirectory
from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import write_extensions
from fleet.machine.standard_streams import tell
from fleet.profiling.sizing import Size
from fleet.session.input_checks import check_input
from fleet.session.known_rates import KnownRates
from fleet.session.metric_trial import BatchTrials
from fleet.session.opening.extended_spec import extensions
from fleet.session.opening.fingerprints import Found, check_unchanged
from fleet.session.options import RunOptions
from fleet.session.same_spec import keep_to_spec
from fleet.session.search.first_trials import take_first_trial
from fleet.session.stages.kept_directory import OvertakenError
from fleet.workers.rank import Rank
from fleet.workers.watchdog import forget_stacks


@dataclass(frozen=True)
class Ready:
    """A run that may begin, or go on.

    Attributes:
        rank: this one.
        options: the options of the command line.
        directory: the run's; it is locked.
        sizes: by the names of the jobs; those of newcomers are added.
        known: by kind of device, "" where all are alike, the rates that need not be measured.
        prints: what is to be written down of data and code.
        trials: have tried metrics and losses, and try those of newcomers.
    """

    rank: Rank
    options: RunOptions
    directory: RunDirectory
    sizes: dict[str, Size]
    known: Mapping[str, KnownRates]
    prints: Found
    trials: BatchTrials


def make_ready(rank: Rank, options: RunOptions) -> Ready:
    """Check all that can be wrong before the journal is touched.

    Raises:
        SpecError, BadInput, RunDirectoryError, ProfileError: what a person can mend.
        OvertakenError: another run has written there while this one started.
    """
    directory = rank.directory
    trials = BatchTrials(rank.datasets)
    sizes = check_input(rank.runtime, rank.cluster, trials, rank.sizes)
    directory.open(rank.runtime.spec.resources.lock_wait, tell, rank.stop)
    if options.profile is None:  # a profile may be of a part of the jobs
        _see_all_jobs(rank)
    spec, ignored = rank.runtime.spec, [directory.path, options.stood / "runs"]
    prints = check_unchanged(directory.journal, spec, rank.datasets, options.accept, ignored)
    forget_stacks(directory.stacks)
    take_first_trial(directory, rank.runtime.spec)
    AddedJobs(directory.path).take_all(job.model_dump(mode="json") for job in rank.runtime.spec.jobs)
    if options.extend is not None:
        write_extensions(directory.path, extensions(options, directory.path))
    keep_to_spec(directory, rank.runtime)
    cluster, again = rank.cluster, options.profile is not None
    known = {
        kind: KnownRates(rank.runtime, directory, model, again, "" if kind else cluster.device_name, kind)
        for kind, model in cluster.rated.items()
    }
    for each in known.values():
        each.of_all()
    return Ready(rank, options, directory, sizes, known, prints, trials)


def _see_all_jobs(rank: Rank) -> None:
    """Raise OvertakenError if the run has taken in a job since its jobs were looked for."""
    known = {job.name for job in rank.runtime.spec.jobs}
    new = [job["name"] for job in AddedJobs(rank.directory.path).taken() if job["name"] not in known]
    if new:
        raise OvertakenError(f"{', '.join(new)}: taken in by the run while this start waited for it")
