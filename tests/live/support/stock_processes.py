"""Stock DistributedDataParallel of one task, a process a rank. Arguments: rank, ranks, seed, epochs, folder."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tests.live.support.moved_tasks import Careful


def seed_all(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def train(rank: int, seed: int, epochs: int) -> dict[str, np.ndarray]:
    """Return everything that must agree bit for bit, by name."""
    task = Careful()
    seed_all(seed)
    model = task.model()
    optimizer = task.optimizer(model)
    schedule = task.scheduler(optimizer)
    parallel = DistributedDataParallel(model)
    seed_all(seed + 1 + rank)
    sampler: DistributedSampler[Any] = DistributedSampler(task.dataset(True), seed=seed)
    loader = DataLoader(task.dataset(True), task.batch_size, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            task.loss(parallel, batch).backward()
            optimizer.step()
            schedule.step()
    found: dict[str, torch.Tensor] = {f"parameter {name}": value for name, value in model.named_parameters()}
    found.update({f"buffer {name}": value for name, value in model.named_buffers()})
    for index, state in optimizer.state_dict()["state"].items():
        found.update({f"optimizer {index} {name}": value for name, value in state.items()})
    found["random"] = torch.get_rng_state()
    return {name: value.detach().numpy().copy() for name, value in found.items()}


def main(rank: int, ranks: int, seed: int, epochs: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    np.savez(folder / f"rank-{rank}.npz", **train(rank, seed, epochs))  # type: ignore[arg-type]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    own_rank, of_ranks, own_seed, until = map(int, sys.argv[1:5])
    main(own_rank, of_ranks, own_seed, until, Path(sys.argv[5]))
