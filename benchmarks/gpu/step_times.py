"""A step of one virtual worker against a plain loop and stock DDP in one process; of four, against accumulation."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.gpu.arithmetic import Arithmetic
from benchmarks.gpu.part import Given, GpuPart, failures_noted
from benchmarks.gpu.timed_turns import TimedWay, in_timed_turns, over, part_of
from benchmarks.ways_to_step import Job, device_backend, plain_loop, stock_ddp, virtual_workers

NETWORKS = {"ResNet-50": 64, "BERT": 32}
"""With the samples of a worker's batch."""
SMALL = {"small ResNet": 2, "small BERT": 2}
PRECISIONS = ("fp32", "TF32", "bf16")
MANY = 4
LEAST = 0.95
"""Of the speed of stock DDP with one worker, and of an accumulating loop with several, that fleet should have."""
ONE_WORKER = ["network", "precision", "batch", "plain loop ms", "fleet over loop", "fleet over DDP", "DDP over loop"]
ONE_WORKER += ["loop over one with any kernels"]
MANY_WORKERS = ["network", "precision", "batch", "accumulating loop ms", "fleet over loop"]


def measure(part: GpuPart) -> None:
    """Time each network in each precision."""
    networks = SMALL if part.given.small else NETWORKS
    cases = [(network, precision) for network in networks for precision in PRECISIONS]
    part.note(
        "the loop, DDP and fleet compute alike: deterministic algorithms, no trial of kernels, one precision for all "
        "(TF32 is set for this measurement, whatever a trainer would pin); the loop with any kernels may try which "
        "is the fastest; loop and DDP read each loss when their step ends, as scripts do"
    )
    rows: dict[int, list[list[Any]]] = {1: [], MANY: []}
    for (workers, network, precision), seconds in part.shares([(n, *case) for case in cases for n in rows]):
        case = f"{workers} {network} {precision}"
        with failures_noted(part, case):
            job = Job(
                network,
                part.given.batch(networks[network]),
                Arithmetic(precision).autocast,
                torch.device(part.given.device),
            )
            timed = (_one_worker if workers == 1 else _many_workers)(job, precision, part.given, seconds)
            cells = _cells_of_one(timed) if workers == 1 else _cells_of_many(timed)
            rows[workers].append([network, precision, job.batch_size, *cells])
            hold(part, case, timed)
        gc.collect()
        torch.get_device_module(part.given.kind).empty_cache()
        part.table("a step of one virtual worker", ONE_WORKER, rows[1])
        part.table(f"a step of {MANY} virtual workers on one device", MANY_WORKERS, rows[MANY])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def hold(part: GpuPart, case: str, told: Mapping[str, list[float]]) -> None:
    """Hold fleet's speed against that of DDP, or of the loop where there is no DDP. On the rig it is none of a GPU's.

    told: seconds of a step, by way.
    """
    if part.given.small:
        return
    other, name = ("ddp", "stock DDP's") if "ddp" in told else ("loop", "an accumulating loop's")
    speed = part_of(told["fleet"], told[other])
    part.bar(f"{case}: speed over {name}", round(speed, 3), f">= {LEAST:g}", speed >= LEAST)


def _one_worker(job: Job, precision: str, given: Given, seconds: float) -> dict[str, list[float]]:
    """Return the seconds of steps of one worker, by way."""
    pinned, device = Arithmetic(precision), torch.device(given.device)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        ways = {
            "loop": TimedWay(plain_loop(job, 1, device), pinned),
            "fleet": TimedWay(virtual_workers(job, 1, device), pinned),
            "ddp": TimedWay(stock_ddp(job, 1, device, 0, Path(folder), device_backend(device)), pinned),
            "free": TimedWay(plain_loop(job, 1, device), Arithmetic(precision, free=True)),
        }
        return in_timed_turns(ways, seconds, given.small)


def _cells_of_one(told: Mapping[str, list[float]]) -> list[Any]:
    """Return the cells of ONE_WORKER from `plain loop ms` on."""
    pairs = (("fleet", "loop"), ("fleet", "ddp"), ("ddp", "loop"), ("loop", "free"))
    return [_milliseconds(told["loop"]), *(over(told[one], told[other]) for one, other in pairs)]


def _many_workers(job: Job, precision: str, given: Given, seconds: float) -> dict[str, list[float]]:
    """Return the seconds of steps of several workers, by way."""
    pinned, device = Arithmetic(precision), torch.device(given.device)
    ways = {
        "loop": TimedWay(plain_loop(job, MANY, device), pinned),
        "fleet": TimedWay(virtual_workers(job, MANY, device), pinned),
    }
    return in_timed_turns(ways, seconds, given.small)


def _cells_of_many(told: Mapping[str, list[float]]) -> list[Any]:
    """Return the cells of MANY_WORKERS from `accumulating loop ms` on."""
    return [_milliseconds(told["loop"]), over(told["fleet"], told["loop"])]


def _milliseconds(seconds: list[float]) -> str:
    low, high = min(seconds) * 1000, max(seconds) * 1000
    return f"{median(seconds) * 1000:.2f} ({low:.2f} to {high:.2f})"
