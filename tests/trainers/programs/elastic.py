"""Every case on every number of trainers, each in two halves with other trainers between. Argument: folder.

Under mpiexec with 4 ranks. The first half, on m trainers, ends in a checkpoint inside the first epoch; the second half
goes on from its file with one trainer fewer (all there can be after one).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from mpi4py import MPI

from tests.trainers.programs.cases import CASES
from tests.trainers.programs.drive import run
from trainers import Group, read, write

HALF = 5


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    tag = 10
    # Its barrier, unlike MPI's, leaves the cores to those who train.
    everyone = Group.form(world, range(world.size), tag, timeout=100)
    for case in CASES:
        for members in range(1, case.virtual_workers + 1):
            half, whole = (folder / f"{case.name}-on-{members}-{part}.h5" for part in ("half", "whole"))
            ranks = list(range(members))
            tag += 2
            if world.rank in ranks:
                with Group.form(world, ranks, tag, timeout=60) as group:
                    checkpoint = run(case, group, HALF).snapshot()
                    if checkpoint is not None:
                        write(half, checkpoint)
            # Other trainers, and another master, in another order.
            ranks = [world.size - 1 - rank for rank in range(members - 1 or case.virtual_workers)]
            everyone.barrier()
            tag += 2
            if world.rank in ranks:
                with Group.form(world, ranks, tag, timeout=60) as group:
                    saved = read(half) if group.is_master else None
                    checkpoint = run(case, group, checkpoint=saved, begin=HALF).snapshot()
                    if checkpoint is not None:
                        write(whole, checkpoint)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
