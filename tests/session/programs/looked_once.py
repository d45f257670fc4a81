"""Two ranks: how many of the messages that came while a rank did not look its first look finds.

`mpiexec -n 2 python looked_once.py FOLDER MESSAGES`: rank 0 writes `found.json`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mpi4py import MPI

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_TRAINER, Shutdown

PATIENCE = 60.0


def seen(path: Path) -> bool:
    """Wait for a file without any call of MPI, as one does who computes."""
    until = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} did not come within {PATIENCE:g} s")
        time.sleep(0.001)
    return True


def main(folder: Path, messages: int) -> None:
    """Send one message after the other, or look once for each when it has been sent."""
    world = MPI.COMM_WORLD
    box, found = Mailbox(world, TO_TRAINER), 0
    for index in range(messages):
        sent, looked = folder / f"sent-{index}", folder / f"looked-{index}"
        if world.rank == 1:
            box.send(0, TO_TRAINER, Shutdown(0))
            box.flush()
            sent.touch()
            seen(looked)
        elif seen(sent):
            found += box.look() is not None
            looked.touch()
    if world.rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    world.Barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
