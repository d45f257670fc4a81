"""Stock DistributedDataParallel whose sampler goes by blocks, a process a rank.

Arguments: rank, ranks, seed, epochs, rows of a block, blocks of a window, Parquet file, folder.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from preprocess.samples.order import BlockOrder
from trainers.zoo import MLP

INPUTS, WIDTH, CLASSES, BATCH = 5, 8, 2, 4
LEARNING_RATE, MOMENTUM = 0.05, 0.9


class BlockSampler(DistributedSampler[Any]):
    """Deals an order by blocks as its parent deals that of all samples."""

    def __init__(self, data: TensorDataset, order: BlockOrder, seed: int) -> None:
        super().__init__(data, seed=seed)
        self._order = order

    def __iter__(self) -> Iterator[int]:
        order = self._order.of(self.seed, self.epoch).tolist()
        padded = order + order[: self.total_size - len(order)]
        return iter(padded[self.rank : self.total_size : self.num_replicas])


def seed_all(value: int) -> None:
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def train(rank: int, seed: int, epochs: int, rows: int, window: int, path: str) -> dict[str, np.ndarray]:
    """Return the parameters, by name."""
    table = pq.read_table(path)
    inputs = torch.from_numpy(np.stack(table.column("x").to_numpy()))
    data = TensorDataset(inputs, torch.from_numpy(table.column("y").to_numpy().copy()))
    seed_all(seed)
    model = MLP(INPUTS, (WIDTH,), CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    parallel = DistributedDataParallel(model)
    seed_all(seed + 1 + rank)
    sampler = BlockSampler(data, BlockOrder(len(data), tuple(range(0, len(data), rows)), window), seed)
    loader = DataLoader(data, BATCH, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch, targets in loader:
            optimizer.zero_grad()
            cross_entropy(parallel(batch), targets).backward()
            optimizer.step()
    return {name: value.detach().numpy().copy() for name, value in model.named_parameters()}


def main(rank: int, ranks: int, seed: int, epochs: int, rows: int, window: int, path: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    np.savez(folder / f"rank-{rank}.npz", **train(rank, seed, epochs, rows, window, path))  # type: ignore[arg-type]
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    numbers = list(map(int, sys.argv[1:7]))
    main(*numbers, sys.argv[7], Path(sys.argv[8]))  # type: ignore[call-arg, arg-type]
