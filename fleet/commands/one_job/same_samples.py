"""Whether all members of a group have the same samples, and the same whenever they are constructed or read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from fleet.commands.one_job.options import TrainError
from preprocess.making.fingerprints import of_its_own
from preprocess.samples.fingerprint import MEND, Fingerprint
from preprocess.samples.order import HELD_OUT, TRAIN
from trainers import Group
from trainers.job.single_job import TaskDatasets, sample_of
from trainers.task.task import Task, name_of, order_seed_of


def datasets_alike(
    task: Task, group: Group, find: Callable[[], TaskDatasets], say: Callable[[str], None]
) -> TaskDatasets:
    """Return the task's data sets, once all members have found theirs to be the same.

    A data set whose samples draw from a generator of its own is told of, and constructed anew: nothing was drawn then.

    Args:
        find: constructs them; all members call it.
        say: is told, on the master.

    Raises:
        TrainError: they are others elsewhere, or the held-out part is another one when it is constructed again.
    """
    data, job = find(), name_of(task)
    prints = _prints(task, data)
    told = _unlike_again(task, data, prints) if group.is_master else ""
    gathered = group.gather_bytes(json.dumps({kind: asdict(each) for kind, each in prints.items()}).encode())
    if group.is_master and not told:
        told = next((text for rank, each in enumerate(gathered) if (text := _unlike(prints, each, rank))), "")
    told = group.bcast_bytes(told.encode()).decode()
    if told:
        raise TrainError(f"task {job}: {told}. {MEND}")
    unsteady = [kind for kind, each in prints.items() if "" in each.digests]
    for kind in unsteady:
        say(of_its_own(f"task {job}", kind))
    return find() if group.bcast_bytes(b"1" if unsteady else b"") else data


def _prints(task: Task, data: TaskDatasets) -> dict[str, Fingerprint]:
    parts = {TRAIN: data.train, HELD_OUT: data.held_out}
    seed = order_seed_of(task)
    return {
        kind: Fingerprint.of(len(part), partial(sample_of, part), seed)
        for kind, part in parts.items()
        if part is not None and len(part)
    }


def _unlike_again(task: Task, data: TaskDatasets, prints: dict[str, Fingerprint]) -> str:
    if HELD_OUT not in prints:
        return ""
    again = data.constructed(task, False)
    unlike = prints[HELD_OUT].unlike(Fingerprint.of(len(again), partial(sample_of, again), order_seed_of(task)))
    return unlike and f"constructed a second time, the held-out part {unlike}, so held-out samples are trained on"


def _unlike(prints: dict[str, Fingerprint], said: bytes, rank: int) -> str:
    for kind, values in json.loads(said).items():
        theirs = Fingerprint(values["length"], tuple(values["numbers"]), tuple(values["digests"]))
        unlike = prints[kind].unlike(theirs, "on rank 0", f"on rank {rank}") if kind in prints else ""
        if unlike:
            return f"its {'training' if kind == TRAIN else 'held-out'} part {unlike}"
    return ""
