"""One of two readers is killed while it holds slots: the writer drops it and the other reads on.

Rank 0 writes, rank 1 lets a forked child read and die by SIGKILL, rank 2 reads all.
"""

from __future__ import annotations

import os
import signal

import numpy as np
from mpi4py import MPI

from preprocess import SampleLayout
from preprocess.ring.lane_memory import lane_bytes
from preprocess.ring.ring import Ring

LAYOUT = SampleLayout((6,), "int32")
SLOT, SLOTS = 4, 60

world = MPI.COMM_WORLD
ring = Ring.create(world, 1, lane_bytes(LAYOUT, 16, SLOT, 1), SLOT, 1)
lane = ring.lanes[0]
if world.rank == 0:
    lane.open(LAYOUT, [1, 2], 1)
    writer = lane.writer(0, LAYOUT, 1)
    for _ in range(SLOTS):
        with writer.slot(timeout=30) as slot:
            slot.inputs[:] = np.arange(slot.start, slot.stop)[:, None]
            slot.targets[:] = np.arange(slot.start, slot.stop) * 3
    assert [holder.name for holder in writer.holders] == [f"reader 2 (process {int(world.recv(source=2))})"]
    writer.close()
    assert lane.active_readers in ((), (2,))
elif world.rank == 1:
    child = os.fork()
    if child == 0:
        victim = lane.reader(1, LAYOUT, 1)
        victim.wait(6, timeout=30)
        victim.release(4)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
else:
    world.send(os.getpid(), 0)
    reader = lane.reader(2, LAYOUT, 1)
    for start in range(0, SLOT * SLOTS, 5):
        assert reader.wait(start + 5, timeout=30)
        inputs, targets = reader.take(np.arange(start, start + 5))
        assert np.array_equal(inputs[:, 3], np.arange(start, start + 5)) and np.array_equal(targets, 3 * inputs[:, 0])
        reader.release(start + 5)
    reader.leave()
    print("the other reader saw all samples", flush=True)
world.Barrier()
ring.free()
