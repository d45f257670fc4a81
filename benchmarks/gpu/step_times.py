"""A step of one virtual worker against a plain loop and stock DDP in one process; of four, against accumulation."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.gpu.arithmetic import Arithmetic
from benchmarks.gpu.part import Given, GpuPart, failures_noted
from benchmarks.gpu.timed_turns import TimedWay, in_timed_turns, over
from benchmarks.ways_to_step import Job, device_backend, plain_loop, stock_ddp, virtual_workers

NETWORKS = {"ResNet-50": 64, "BERT": 32}
"""With the samples of a worker's batch."""
SMALL = {"small ResNet": 2, "small BERT": 2}
PRECISIONS = ("fp32", "TF32", "bf16")
MANY = 4
ONE_WORKER = ["network", "precision", "batch", "plain loop ms", "fleet over loop", "fleet over DDP", "DDP over loop"]
ONE_WORKER += ["loop over one with any kernels"]
MANY_WORKERS = ["network", "precision", "batch", "accumulating loop ms", "fleet over loop"]


def measure(part: GpuPart) -> None:
    """Time each network in each precision, one worker first."""
    networks = SMALL if part.given.small else NETWORKS
    cases = [(network, precision) for network in networks for precision in PRECISIONS]
    part.note(
        "the loop, DDP and fleet compute alike: deterministic algorithms, no trial of kernels, one precision for all "
        "(TF32 is set for this measurement, whatever a trainer would pin); the loop with any kernels may try which "
        "is the fastest; loop and DDP read each loss when their step ends, as scripts do"
    )
    rows: dict[int, list[list[Any]]] = {1: [], MANY: []}
    for (workers, network, precision), seconds in part.shares([(n, *case) for n in rows for case in cases]):
        with failures_noted(part, f"{workers} {network} {precision}"):
            job = Job(
                network,
                part.given.batch(networks[network]),
                Arithmetic(precision).autocast,
                torch.device(part.given.device),
            )
            timed = _one_worker if workers == 1 else _many_workers
            rows[workers].append([network, precision, job.batch_size, *timed(job, precision, part.given, seconds)])
        gc.collect()
        torch.get_device_module(part.given.kind).empty_cache()
        part.table("a step of one virtual worker", ONE_WORKER, rows[1])
        part.table(f"a step of {MANY} virtual workers on one device", MANY_WORKERS, rows[MANY])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _one_worker(job: Job, precision: str, given: Given, seconds: float) -> list[Any]:
    """Return the cells of ONE_WORKER from `plain loop ms` on."""
    pinned, device = Arithmetic(precision), torch.device(given.device)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        ways = {
            "loop": TimedWay(plain_loop(job, 1, device), pinned),
            "fleet": TimedWay(virtual_workers(job, 1, device), pinned),
            "ddp": TimedWay(stock_ddp(job, 1, device, 0, Path(folder), device_backend(device)), pinned),
            "free": TimedWay(plain_loop(job, 1, device), Arithmetic(precision, free=True)),
        }
        told = in_timed_turns(ways, seconds, given.small)
    pairs = (("fleet", "loop"), ("fleet", "ddp"), ("ddp", "loop"), ("loop", "free"))
    return [_milliseconds(told["loop"]), *(over(told[one], told[other]) for one, other in pairs)]


def _many_workers(job: Job, precision: str, given: Given, seconds: float) -> list[Any]:
    pinned, device = Arithmetic(precision), torch.device(given.device)
    ways = {
        "loop": TimedWay(plain_loop(job, MANY, device), pinned),
        "fleet": TimedWay(virtual_workers(job, MANY, device), pinned),
    }
    told = in_timed_turns(ways, seconds, given.small)
    return [_milliseconds(told["loop"]), over(told["fleet"], told["loop"])]


def _milliseconds(seconds: list[float]) -> str:
    low, high = min(seconds) * 1000, max(seconds) * 1000
    return f"{median(seconds) * 1000:.2f} ({low:.2f} to {high:.2f})"
