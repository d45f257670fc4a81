"""A resize in the middle of which a member is killed, or never comes. Arguments: what happens, folder. 3 ranks.

Ranks 0 and 1 train; they are to go on with rank 2 in place of rank 1. Each rank that lives writes what it saw.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from mpi4py import MPI

from tests.trainers.programs.cases import Case
from tests.trainers.programs.drive import advance
from trainers import Group, PeerFailed, PeerSilent, Trainer
from trainers.job import resize as resizing
from trainers.job.resize import joining, resize

OLD, NEW, VICTIM = [0, 1], [0, 2], 2
TIMEOUT = {"killed": 5.0, "absent": 5.0, "refused": 60.0}
"""The one who dies has to come as far as dying within it: on a busy machine, too."""
END = 120.0


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(*_: object) -> None:
    raise MemoryError("no room for the newcomer")


def main(what: str, folder: Path) -> None:
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    case = Case("cnn", "sgd", 3)
    if world.rank in OLD:
        trainer = Trainer(case, 3, Group.form(world, OLD, 10, timeout=END))
        advance(trainer, case, 2)
    else:
        trainer = Trainer(case, 3, joining(NEW, world.rank))
    Group.form(world, range(world.size), 12, timeout=END)  # all are ready
    if world.rank == VICTIM:
        if what == "killed":  # between its contexts and the shared state: the others are in the middle of the move
            resizing._share = die  # type: ignore[assignment]
        elif what == "refused":
            trainer.check_fit = refuse  # type: ignore[method-assign,assignment]
        else:
            world.Recv(bytearray(1), 0, 99)
            return
    try:
        resize(trainer, world, OLD, NEW, 20, timeout=TIMEOUT[what])
        seen = "went on"
    except PeerSilent as error:
        seen = f"PeerSilent {list(error.ranks)}"
    except PeerFailed as error:
        seen = f"PeerFailed {error.rank}: {error.text}"
    except MemoryError as error:
        seen = f"raised: {error}"
    (folder / f"rank-{world.rank}.txt").write_text(f"{seen}\n{trainer.steps} {len(trainer.workers)}")
    if what == "absent" and world.rank == 0:
        world.Send(bytearray(1), VICTIM, 99)
    if what == "killed":
        os._exit(0)  # MPI cannot part in order once a rank is dead


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
