"""The yardstick: torch's own DistributedDataParallel over gloo. Arguments: rank, folder."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tests.trainers.programs.cases import BATCH, CASES, SEED, STEPS, VECTOR_SIZES, Case, state_arrays, vector


def seed(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def train(case: Case, rank: int) -> dict[str, np.ndarray]:
    seed(SEED)
    model = case.model()
    optimizer = case.optimizer(model)
    schedule = case.scheduler(optimizer)
    parallel = DistributedDataParallel(model)
    seed(SEED + 1 + rank)
    sampler: DistributedSampler[Any] = DistributedSampler(case.dataset(True), seed=SEED)
    loader = DataLoader(case.dataset(True), BATCH, sampler=sampler)
    steps, epoch = 0, 0
    while steps < STEPS:
        sampler.set_epoch(epoch)
        for input, target in loader:
            optimizer.zero_grad()
            functional.cross_entropy(parallel(input), target).backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
            steps += 1
            if steps == STEPS:
                break
        epoch += 1
    buffers = {f"buffer {name}": value.numpy().copy() for name, value in model.named_buffers()}
    return {**state_arrays(model, optimizer), **buffers}


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    for ranks in (2, 3, 4):
        if rank >= ranks:
            continue
        dist.init_process_group("gloo", init_method=f"file://{folder}/store-{ranks}", rank=rank, world_size=ranks)
        for case in CASES:
            if case.virtual_workers == ranks:
                np.savez(folder / f"{case.name}-{rank}.npz", **train(case, rank))  # type: ignore[arg-type]
        for size in VECTOR_SIZES:
            total = vector(size, rank)
            dist.all_reduce(total)
            if rank == 0:
                np.save(folder / f"sum-{ranks}-{size}.npy", total.numpy())
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
    os._exit(0)  # threads of gloo that are not joined abort a process that exits in order, now and then
