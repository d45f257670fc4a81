"""The ring does not fit into the node's shared memory: every rank says so, and nothing is allocated."""

from __future__ import annotations

from mpi4py import MPI

from preprocess.ring.lane_memory import bytes_needed
from preprocess.ring.ring import Ring
from preprocess.ring.shared_memory import shared_memory_available
from preprocess.samples.errors import SharedMemoryError

world = MPI.COMM_WORLD
lane_size = 200 << 20
before = shared_memory_available()[0]
world.Barrier()
try:
    Ring.create(world, 2, lane_size, 32, 1)
except SharedMemoryError as error:
    assert error.needed >= bytes_needed(2, lane_size, 32, world.size, 1) > error.available
    assert shared_memory_available()[0] == before
    texts = world.allgather(str(error))
    assert len(set(texts)) == 1
    if world.rank == 0:
        print(texts[0], flush=True)
else:
    raise AssertionError("400 MiB were allocated")
ring = Ring.create(world, 1, 1 << 20, 32, 1)  # a smaller one does fit
ring.free()
