"""How much room the checkpoints of a run take on the disk."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.profiling.sizing import Size
from fleet.report.wording import plural, readable_bytes
from fleet.spec import EnsembleSpec, Job, SearchSpec


def checkpoint_bytes(size: Size, workers: int) -> int:
    """One checkpoint: parameters, the optimizer's state, and each virtual worker's buffers."""
    return size.parameter_bytes + size.optimizer_bytes + workers * size.buffer_bytes


def disk_need(spec: EnsembleSpec, own: Mapping[str, Job], sizes: Mapping[str, Size]) -> tuple[int, str]:
    """Bytes that all checkpoints take at most at a time, and a sentence.

    Args:
        spec: with the first trials of its search as further jobs.
        own: the jobs that the spec itself names, by name.
        sizes: of all its jobs.
    """
    each = {job.name: checkpoint_bytes(sizes[job.name], job.virtual_workers) for job in spec.jobs}
    keep = max(1, spec.checkpoints.keep) + (spec.checkpoints.best is not None)
    total = sum(each[name] for name in own) * keep
    largest = max(each.values(), default=0)
    told = f"{keep} of each network"
    if spec.search is not None:
        largest = max((each[name] for name in each if name not in own), default=largest)
        trials = trials_kept(spec.search, spec.checkpoints.keep)
        if trials is None:
            told += ", and nobody says how many trials there will be: counted are those under way"
        total += (trials or spec.search.width) * keep * largest
        told += f" and of {plural(trials or spec.search.width, 'trial')}"
    total += largest  # the one before stays until the next is complete
    return total, f"checkpoints take up to {readable_bytes(total)} of disk: {told}, of up to {readable_bytes(largest)}"


def trials_kept(search: SearchSpec, keep: int) -> int | None:
    """Of how many trials checkpoints are kept at a time, at most; None: nobody says how many there are."""
    most = search.most_trials
    if most is None or keep or search.stopping.name != "halving" or search.stopping.synchronous:
        return most
    going_on = sum(most // search.stopping.eta ** (level + 1) for level in range(len(search.rungs) - 1))
    return min(most, search.width + going_on + 1)
