"""At the end of a run: how good its networks are together, in a small share of the run's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fleet.machine.standard_error import tell
from fleet.models.errors import HarvestError
from fleet.session.stages.opened import Opened

if TYPE_CHECKING:
    from torch import Tensor

    from fleet.models.members import Member, Members
    from fleet.models.validation_data import HeldOut

LEAST_SECONDS, MOST_SECONDS, SHARE = 10.0, 20.0, 0.02
"""It takes this share of the run's seconds, but no less than the first and no more than the second."""
_MOST_BYTES = 1 << 31
_METRIC = "accuracy"


class _Late(HarvestError):
    """It would take too long."""


def voted(opened: Opened, seconds: float) -> dict[str, float]:
    """Return the figures of all done networks together, by a soft vote; empty where there is nothing to tell.

    That needs two or more which measure their accuracy and share their held-out samples. Whatever goes wrong is told in
    a line: the run has ended, and fails no more.

    Args:
        seconds: the run took so long so far.
    """
    runtime = opened.rank.runtime
    if not runtime.spec.ensemble or runtime.rehearsal is not None or opened.ready.options.profile is not None:
        return {}
    jobs = opened.books.ledger.jobs.values()
    names = [job.name for job in jobs if job.status == "done" and _METRIC in job.result()["metrics"]]
    if len(names) < 2 or opened.rank.stop.raised:
        return {}
    limit = min(max(LEAST_SECONDS, SHARE * seconds), MOST_SECONDS)
    try:
        return _figures(opened, names, _clock(opened, limit))
    except Exception as error:  # of the user's code, too
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = f"; `fleet predict {opened.output.directory.path}` takes its time" if isinstance(error, _Late) else ""
        tell(f"how good the networks are together is not told: {why}{hint}")
        return {}


def _clock(opened: Opened, limit: float) -> Callable[[float], None]:
    """What raises _Late once the share of the work that is done says that all of it takes longer than the limit."""
    end, begin = time.monotonic() + limit, time.monotonic()

    def check(share: float) -> None:
        now = time.monotonic()
        if opened.rank.stop.raised or now > end or (share and (now - begin) / share > limit):
            raise _Late(f"it would take longer than {limit:.0f} s")

    return check


def _figures(opened: Opened, names: list[str], check: Callable[[float], None]) -> dict[str, float]:
    from fleet.models.load import load_members
    from fleet.models.members import read_members
    from fleet.models.predictions import BATCH, predict
    from fleet.models.vote import Vote

    found = read_members(opened.output.directory.path)
    chosen = [found.of(name) for name in names]
    samples = _shared(opened, found, chosen)
    if samples is None:
        return {}
    _check_room(chosen)
    check(0.0)
    ensemble = load_members(found, chosen, each=lambda: check(0.0))
    batches = _watched(samples, BATCH, check)
    verdict = Vote.of_all(predict(ensemble, batches, each=lambda: check(0.0)))
    check(0.0)
    return verdict.ensemble()


def _shared(opened: Opened, found: Members, chosen: list[Member]) -> HeldOut | None:
    """The held-out samples of all; None where they share none, or give no classes."""
    from fleet.models.predictions import check_classes
    from fleet.models.validation_data import held_out_of

    jobs = [member.job for member in chosen]
    try:
        check_classes(jobs)
        return held_out_of(found.spec, jobs, opened=opened.rank.datasets)
    except HarvestError:
        return None


def _check_room(chosen: list[Member]) -> None:
    size = sum(member.checkpoint().stat().st_size for member in chosen)
    if size > _MOST_BYTES:
        raise _Late(f"their checkpoints hold {size / 1e9:.1f} GB, too much for rank 0 beside its work")


def _watched(samples: HeldOut, size: int, check: Callable[[float], None]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The batches; before each but the first the clock is asked."""
    done = 0
    for inputs, targets in samples.batches(size, lambda: check(0.0)):
        yield inputs, targets
        done += len(inputs)
        check(done / len(samples.samples))
