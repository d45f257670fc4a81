"""Rates that a run goes by until training has told better ones."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.profiling.guesses import guessed_rate
from fleet.profiling.sizing import Size
from fleet.scheduling.model.rates import RateCurve
from fleet.session.mixed_kinds import mixes_kinds
from fleet.session.stages.opened import Opened


def waits_for_training(opened: Opened) -> bool:
    """Whether jobs without known rates train by guesses until training has told their rates."""
    spec, rehearsal = opened.rank.runtime.spec, opened.rank.runtime.rehearsal
    if opened.ready.options.profile is not None:
        return False
    return spec.profile.when == "training" if rehearsal is None else spec.rehearse is not None and spec.rehearse.learn


def measured_first(opened: Opened) -> frozenset[str]:
    """Jobs about which something is decided for good before they have trained: no guess is good enough for that.

    A deadline is promised; a batch is chosen; a job stays on the kind of device on which it begins; so many of its
    trainers share an accelerator.
    """
    spec, kinds = opened.rank.runtime.spec, len(opened.ready.known) > 1
    runtime, cluster = opened.rank.runtime, opened.rank.cluster
    batches, shared = opened.policy.chooses_batches, opened.policy.most_executors > 1
    return frozenset(
        job.name
        for job in spec.jobs
        if job.deadline is not None
        or (batches and job.batches is not None)
        or shared
        or (kinds and not mixes_kinds(runtime, cluster, job.name)[0])
    )


def guess(opened: Opened, size: Size) -> float:
    """Samples/s of a job of that size on one device, of the first kind, by all that the run knows by now."""
    kind, sizes = next(iter(opened.ready.known)), opened.ready.sizes
    rated = (job for job in opened.books.ledger.jobs.recent(kind) if job.name in sizes)
    others = ((sizes[job.name], job.curves[kind](1)) for job in rated)
    return guessed_rate(size, others, opened.rank.cluster.device_name.partition(":")[0])


def guessed_curves(opened: Opened, job: str) -> Mapping[str, RateCurve]:
    """A job's curve on each kind of device, from one such guess."""
    ledger, kind = opened.books.ledger, next(iter(opened.ready.known))
    rates = {1: guess(opened, opened.ready.sizes[job])}
    curve = RateCurve(rates, per_node=ledger.cluster.per_node(kind), workers=ledger.jobs[job].limit)
    return ledger.completed({kind: curve})
