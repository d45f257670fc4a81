"""Batches on their way from the host to a device."""

from __future__ import annotations

from typing import Any

import torch
import torch_rig

from tests.gpu.device_tasks import Convolutions
from trainers import Group, Trainer
from trainers.job.single_job import SingleJob, TaskDatasets
from trainers.task.task import move

DEVICE = torch.device("rig", 1)
WARM, STEPS = 5, 3
BATCHES = 4


def of_collated(schedule: str) -> dict[str, Any]:
    """Send batches of many tensors, each of which changes at once; return how many come wrong, and counts."""
    torch_rig.schedule(schedule)
    torch.accelerator.set_device_index(1)
    torch.zeros(1, device=DEVICE)
    torch_rig.counts()
    sent = []
    for number in range(BATCHES):
        more = [(torch.full((3,), 0.5 * number), "a word")]
        batch: dict[str, Any] = {"long": torch.full((5, 7), number), "more": more}
        sent.append(move(batch, DEVICE))
        batch["long"].zero_()
        del batch, more
    counts = torch_rig.counts()
    wrong = sum(bool((batch["long"].cpu() != number).any()) for number, batch in enumerate(sent))
    wrong += sum(bool((batch["more"][0][0].cpu() != 0.5 * number).any()) for number, batch in enumerate(sent))
    return {"wrong": wrong, **_of_copies(counts)}


def of_single_job() -> dict[str, Any]:
    """Counts of steps of one job alone, whose samples are drawn when their worker's turn comes."""
    torch_rig.schedule("prompt")
    torch.accelerator.set_device_index(1)
    task = Convolutions()
    job = SingleJob(Trainer(task, 2, Group.alone(), DEVICE), TaskDatasets(task), lambda news: None, lambda: False)
    job.run(WARM)
    torch_rig.counts()
    job.run(WARM + STEPS)
    return _of_copies(torch_rig.counts())


def _of_copies(counts: dict[str, int]) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in ("h2d", "pageable copies", "syncs")}
