"""Two ranks: which sends are complete while the receiver is outside MPI, and what it then receives.

`mpiexec -n 2 python small_messages.py FOLDER BYTES...`: rank 1 writes `told.json`, whether each was complete.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from fleet.machine.launch.launched import copy_small_messages

TAG, LOOKS = 7, 1000


def told_of(folder: Path, size: int) -> bool:
    """Send so many bytes to a rank that waits at a pipe, and write over them once MPI says that they are sent."""
    from mpi4py import MPI

    world, memory = MPI.COMM_WORLD, np.full(size, 1, np.uint8)
    world.Barrier()
    if world.rank == 0:
        with (folder / "pipe").open("wb") as pipe:
            request = world.Isend(memory, 1, TAG)
            complete = any(request.Test() for _ in range(LOOKS))
            memory[:] = 1 if not complete else 2
            pipe.write(bytes([complete]))
        request.Wait()
        return complete
    (said,) = (folder / "pipe").read_bytes()
    world.Recv(memory, 0, TAG)
    assert (memory == 1).all(), "it was sent as it is later"
    return bool(said)


def main(folder: Path, sizes: list[int], copied: bool) -> None:
    """Send one message of each size."""
    if copied:
        copy_small_messages()
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 0:
        os.mkfifo(folder / "pipe")
    found = [told_of(folder, size) for size in sizes]
    if MPI.COMM_WORLD.rank == 1:
        (folder / "told.json").write_text(json.dumps(found))
    MPI.COMM_WORLD.Barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(size) for size in sys.argv[3:]], sys.argv[2] == "copied")
