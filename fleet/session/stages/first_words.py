"""What a session writes into the journal before anything happens in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.metadata import version

import fleet
from fleet.coordination.job_record import settle_best, told_bests
from fleet.journal import events
from fleet.journal.journal import Journal, read_journal
from fleet.machine.cluster_map import ClusterMap
from fleet.machine.horovod import NOT_BIT_FOR_BIT
from fleet.profiling.sizing import Size, refused_on
from fleet.scheduling.policies import Policy
from fleet.search.of_spec import seed_of
from fleet.session.binding_table import binding_table
from fleet.session.blocks import order_problems
from fleet.session.console import rank_console
from fleet.session.input_checks import lengths_of
from fleet.session.mixed_kinds import stays_on_one
from fleet.session.priced_devices import prices_of
from fleet.session.stages.books import Books
from fleet.session.stages.ready import Ready
from fleet.spec import Job, spec_hash
from fleet.spec.directions import compared_by, recorded_directions
from fleet.spec.job import data_key
from fleet.spec.semantics import schedule_notes
from fleet.spec.subsets import part_in_words
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime


def write_first_words(ready: Ready, policy: Policy, books: Books) -> None:
    """Write what the run is, on which machine, and what its checkpoints say that the journal does not."""
    rank, journal = ready.rank, books.keeper.journal
    _write_session(ready, policy, books.ledger.sessions, journal)
    machine = rank.cluster.record()
    journal.write(events.Cluster(**{**machine, "ranks": tuple(events.Rank(**each) for each in machine["ranks"])}))
    prices = prices_of(rank.runtime.spec, rank.cluster)
    if prices is not None:
        journal.write(
            events.PricesTold(courses=prices.by_kind, worth=prices.worth if prices.worth < math.inf else None)
        )
    for job in rank.runtime.spec.jobs:
        size, due = ready.sizes[job.name], books.ledger.jobs[job.name].state.deadline
        write_job(journal, rank.runtime, job, size, due, rank.cluster)
    for job in books.batches.idle(rank.runtime.spec.jobs):
        text = f"policy {policy.name} chooses no batches: that of the job is {job.global_batch} samples"
        journal.write(events.Warned(text=text, job=job.name))
    ready.prints.write(journal)
    for name, epochs in books.longer.items():
        journal.write(events.Extended(job=name, epochs=epochs))
    _settle_bests(rank, books)
    _write_found(books)
    for event in read_journal(ready.directory.journal):
        if isinstance(event, events.Warned) and event.damaged_line:  # whoever reads the journal sees it there
            journal.announce(event)
    for text in _warnings(ready):
        journal.write(events.Warned(text=text))
    if books.ledger.sessions == 0:
        rank_console().print(binding_table(rank.cluster))


def write_job(journal: Journal, runtime: Runtime, job: Job, size: Size, due: float, cluster: ClusterMap) -> None:
    """Write down what a job is, and what its code cannot do on its devices.

    Args:
        due: second of the run at which it should be done; infinite: none.
    """
    describe_job(journal, runtime, job, size, due)
    for text in (*refused_on(cluster.device_name, job.name, size), *stays_on_one(runtime, cluster, job.name)):
        journal.write(events.Warned(text=text, job=job.name))


def describe_job(journal: Journal, runtime: Runtime, job: Job, size: Size, due: float) -> None:
    """Write down what a job is, as `write_job`."""
    level = job.service_level
    journal.write(
        events.Job(
            job=job.name,
            model=str(job.model or job.task),
            parameters=size.parameters,
            parameter_bytes=size.parameter_bytes,
            virtual_workers=job.virtual_workers,
            batch_size=job.batch_size,
            seed=job.weights_seed,
            order_seed=job.order_seed,
            data=data_key(job),
            samples=runtime.trained_in_epoch(job.name),
            part=part_in_words(job),
            max_epochs=job.stop.epochs,
            arrival=job.arrival,
            deadline=job.deadline,
            due=due if due < math.inf else None,
            priority=job.priority,
            guaranteed=job.guaranteed,
            minimum_devices=job.minimum_devices,
            service_level=None if level is None else events.ServiceLevel(level.devices, level.window),
            better=recorded_directions(runtime.spec, job),
        )
    )


def _write_session(ready: Ready, policy: Policy, number: int, journal: Journal) -> None:
    rank, spec, rehearsal = ready.rank, ready.rank.runtime.spec, ready.rank.runtime.rehearsal
    versions = {name: version(name) for name in ("torch", "numpy", "mpi4py", "h5py")}
    journal.write(
        events.Session(
            session=number,
            fleet=fleet.__version__,
            versions=versions,
            host=rank.cluster.places[0].host,
            spec_hash=spec_hash(spec),
            policy=policy.name,
            policy_parameters=dict(spec.policy.parameters),
            rehearsal=events.Rehearsal(rehearsal.time_scale) if rehearsal else None,
            name=spec.name,
            reduce=ready.options.reduce,
            search_seed=None if spec.search is None else seed_of(spec),
            compared_by=compared_by(spec),
        )
    )


def _settle_bests(rank: Rank, books: Books) -> None:
    """Let best checkpoints and what the journal says of them agree, of jobs that go on."""
    if not rank.runtime.keeps_best:
        return
    told = told_bests(read_journal(rank.directory.journal))
    for name, found in books.found.items():
        settle_best(books.keeper.record, rank.directory.checkpoints(name), name, found, told)


def _write_found(books: Books) -> None:
    """Write down which jobs were done before the journal could say so, and whose checkpoints are all damaged."""
    for name, found in books.found.items():
        if found.ended:
            books.keeper.record(
                events.Done(job=name, epoch=found.epoch, why=found.ended, metrics=found.metrics, checkpoint=found.path)
            )
    for name, found in books.found.items():
        if found.rejected and found.path is None:
            damage = "; ".join(map(str, found.rejected))
            text = f"no checkpoint of {name} can be used, it begins anew: {damage}"
            books.keeper.journal.write(events.Warned(text=text, job=name))


def _warnings(ready: Ready) -> Iterator[str]:
    """What a person should know of how the run was started."""
    rank = ready.rank
    yield from rank.warnings
    yield from ready.prints.notes
    yield from order_problems(rank.runtime, len(rank.cluster.preprocessors))
    yield from schedule_notes(rank.runtime.spec, lengths_of(rank.runtime))
    if ready.options.reduce == "horovod":
        yield NOT_BIT_FOR_BIT
    wanted, trainers = rank.runtime.spec.resources.trainers, len(rank.cluster.trainers)
    if wanted is not None and wanted != trainers:
        yield f"the spec asks for {wanted} trainers, the launcher started ranks for {trainers}: {trainers} train"
