"""A rank that exchanges cores with another, case by case. Argument: the cases, as JSON.

Of each case: its name, the ranks' cores, their nodes, and whether they are a group's members and no run's ranks.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial

from mpi4py import MPI

from fleet.commands.train_rank import gather_all
from fleet.machine.cluster_map import _settled_cores
from fleet.machine.devices import settle_cores
from trainers import Group


def main() -> None:
    """Try each case, and say what came of it."""
    world = MPI.COMM_WORLD
    group = Group.form(world, range(2), 10)
    for name, listed, nodes, in_a_group in json.loads(sys.argv[1]):
        cores = [tuple(own) for own in listed]
        os.sched_setaffinity(0, cores[world.rank])
        if in_a_group:
            settled = settle_cores(partial(gather_all, group), world.rank, cores, [cores[1], ()], nodes)
        else:  # rank 0 alone knows what all have
            hosts, devices = [{"cores": own} for own in listed], [{"near": cores[1]}, {}]
            known = (hosts, devices) if world.rank == 0 else ([], [])
            settled = world.bcast(_settled_cores(world, *known, nodes))
        said = json.dumps([name, world.rank, settled == cores[::-1], sorted(os.sched_getaffinity(0))])
        sys.stdout.write(said + "\n")  # at once, as ranks share the stream
        sys.stdout.flush()


if __name__ == "__main__":
    main()
