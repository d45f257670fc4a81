"""A script under DDP that works on each batch in parts which do not weigh alike, written as a person writes it.

    python -m benchmarks.numbered.ddp_script FOLDER RANKS RANK [KIND PARTS known|told EPOCHS] ...

It trains one network after another, and leaves their weights in FOLDER/RANK.pt.
"""

from __future__ import annotations

import random
import sys
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.numbered.uneven_tasks import BATCH, Uneven, collate, loss_and_weight, samples, weight_of


def seed(value: int) -> None:
    """Seed all generators."""
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)


def train(kind: str, parts: int, known: bool, epochs: int, ranks: int, rank: int) -> dict[str, torch.Tensor]:
    """Train, and return the weights."""
    seed(0)
    task = Uneven(kind)
    plain = task.model()
    optimizer = task.optimizer(plain)
    model = DistributedDataParallel(plain)
    seed(1 + rank)
    data = samples(kind)
    sampler: DistributedSampler[object] = DistributedSampler(data, ranks, rank, True, 0)  # type: ignore[arg-type]
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(data, BATCH, sampler=sampler, collate_fn=collate):  # type: ignore[arg-type]
            optimizer.zero_grad()
            cuts = min(parts, len(inputs))
            pieces = list(zip(inputs.tensor_split(cuts), targets.tensor_split(cuts)))
            whole, gone = sum(weight_of(kind, part) for _, part in pieces), 0.0
            for number, (piece, part) in enumerate(pieces, 1):
                last = number == len(pieces)
                with nullcontext() if last else model.no_sync():
                    mean, weight = loss_and_weight(kind, model(piece), part)
                    gone += weight
                    loss = mean / (whole / weight) if known and weight else mean * weight
                    if not weight:
                        loss = sum((each * 0.0).sum() for each in plain.parameters())  # type: ignore[assignment]
                    if last and not known:
                        for each in plain.parameters():
                            if each.grad is not None:
                                each.grad.div_(gone)
                        loss = loss / gone
                    loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return {name: each.detach() for name, each in plain.named_parameters()}


def main(folder: str, ranks: str, rank: str, *networks: str) -> None:
    """Train as one of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=int(rank), world_size=int(ranks))
    found = [
        train(kind, int(parts), known == "known", int(epochs), int(ranks), int(rank))
        for kind, parts, known, epochs in zip(*(networks[place::4] for place in range(4)))
    ]
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
