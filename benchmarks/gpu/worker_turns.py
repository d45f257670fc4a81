"""What switching between workers costs, and a turn beside stock DDP's step: EasyScale's Figure 13 (SC'23, 5.1).

The paper compares eight EasyScaleThreads on one V100 with DDP on eight. On one device DDP is one process that joins
with nobody, so what it waits for others is not in its step here.
"""

from __future__ import annotations

import gc
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.gpu.arithmetic import Arithmetic
from benchmarks.gpu.part import Given, GpuPart, failures_noted
from benchmarks.gpu.timed_turns import WARM_UP, TimedWay, in_timed_turns, over
from benchmarks.networks_to_step import STEPPED
from benchmarks.ways_to_step import Job, device_backend, plain_loop, stock_ddp, virtual_workers
from trainers import Group, Trainer

NETWORKS = {"VGG-19": 32, "BERT": 32, "Swin-T": 32}
"""With the samples of a worker's batch; the paper has YOLOv3, too, of which no network is here."""
SMALL = {"small BERT": 2}
WORKERS, STEPS = 8, 8
COLUMNS = ["network", "batch", "one worker over plain loop", "DDP's step ms"]
COLUMNS += [f"turns 0 to {WORKERS - 2} over DDP's step", "last turn with sum and update over DDP's step"]


def measure(part: GpuPart) -> None:
    """Time each network that there is."""
    networks = SMALL if part.given.small else {name: size for name, size in NETWORKS.items() if name in STEPPED}
    rows: list[list[Any]] = []
    for network, seconds in part.shares(list(networks)):
        with failures_noted(part, network):
            job = Job(network, part.given.batch(networks[network]), placed=torch.device(part.given.device))
            rows.append([network, job.batch_size, *_cells(job, part.given, seconds)])
        gc.collect()
        torch.get_device_module(part.given.kind).empty_cache()
        part.table(f"EasyScale's Figure 13: {WORKERS} workers on one device, fp32", COLUMNS, rows)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _cells(job: Job, given: Given, seconds: float) -> list[Any]:
    """Return the cells of COLUMNS from the third on."""
    device = torch.device(given.device)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        pinned = Arithmetic("fp32")
        ways = {
            "loop": TimedWay(plain_loop(job, 1, device), pinned),
            "fleet": TimedWay(virtual_workers(job, 1, device), pinned),
            "ddp": TimedWay(stock_ddp(job, 1, device, 0, Path(folder), device_backend(device)), pinned),
        }
        told = in_timed_turns(ways, seconds / 2, given.small)
    ddp = median(told["ddp"])
    first, last = _turns(job, device)
    return [over(told["fleet"], told["loop"]), f"{ddp * 1000:.2f}", *(f"{each / ddp:.3f}" for each in (first, last))]


def _turns(job: Job, device: torch.device) -> tuple[float, float]:
    """Return the median seconds of a turn before the last, and of the last with all that ends a step."""
    trainer, data = Trainer(job, WORKERS, Group.alone(), device), job.batches(WORKERS)
    Arithmetic("fp32").apply()
    firsts, lasts = [], []
    for step in range(WARM_UP + STEPS):
        marks: list[torch.Event] = []
        trainer.step([partial(_begun, marks, device, batch) for batch in data])
        marks.append(_marked(device))
        torch.accelerator.synchronize()
        spans = [one.elapsed_time(other) / 1000 for one, other in zip(marks, marks[1:])]
        if step >= WARM_UP:
            firsts.append(sum(spans[:-1]) / (WORKERS - 1))
            lasts.append(spans[-1])
    return median(firsts), median(lasts)


def _begun(marks: list[torch.Event], device: torch.device, batch: Any) -> Any:
    """Give a worker its batch, as its turn begins."""
    marks.append(_marked(device))
    return batch


def _marked(device: torch.device) -> torch.Event:
    event = torch.Event(device, enable_timing=True)
    event.record()
    return event
