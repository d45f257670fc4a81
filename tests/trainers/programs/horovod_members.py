"""Jobs whose gradients Horovod adds, in groups that come and go. Argument: folder. Under mpiexec, 4 ranks.

Each rank writes what it saw to horovod-R.json; masters write checkpoints to CASE-on-M.h5 and CASE-moved.h5.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

from tests.trainers.programs.cases import STEPS, Case
from tests.trainers.programs.drive import advance, run
from trainers import Group, PeerFailed, PeerSilent, Trainer, joining, resize, write
from trainers.reduce.horovod import horovod_reduce

WORLD = MPI.COMM_WORLD
TRAINED = (Case("mlp", "adam", 3), Case("cnn", "sgd", 3), Case("cnn", "sgd", 4))
GROUPS = ([[2, 0], [3, 1]], [[1, 2, 3], [0]], [[0, 3, 1, 2]], [[3], [1, 0, 2]])
MOVES = [[0, 1], [3, 1, 0], [2], [2, 3], [1]]
SECONDS = 60.0


def training(folder: Path) -> None:
    """The cases of three and four workers on each number of trainers, one after the other."""
    for number, case in enumerate(TRAINED):
        for members in range(1, case.virtual_workers + 1):
            if WORLD.rank < members:
                with Group.form(WORLD, range(members), 100 + 10 * number + 2 * members, SECONDS) as group:
                    checkpoint = run(case, group, reducer=horovod_reduce).snapshot()
                    if checkpoint is not None:
                        write(folder / f"{case.name}-on-{members}.h5", checkpoint)


def groups_side_by_side() -> list[bool]:
    """Networks train at the same time in groups that are formed anew; whether each sum was right."""
    right = []
    for turn, groups in enumerate(GROUPS):
        mine = next(ranks for ranks in groups if WORLD.rank in ranks)
        with Group.form(WORLD, mine, 400 + 2 * turn, SECONDS) as group:
            reducer = horovod_reduce(group, len(mine), torch.device("cpu"))
            reducer.start()
            for _ in range(3):
                vectors = [torch.full((size,), float(WORLD.rank)) for size in (1, 1000, 70_001)]
                totals = [reducer.sum([vector]) for vector in vectors]
                reducer.complete()
                right.append(all(bool((total == sum(mine)).all()) for total in totals))
            reducer.stop(True)
    return right


def moving(folder: Path) -> None:
    """A job goes from ranks to others and back, in place."""
    case = Case("cnn", "sgd", 3)
    group = Group.form(WORLD, MOVES[0], 500, SECONDS) if WORLD.rank in MOVES[0] else None
    trainer = Trainer(case, 3, group, reducer=horovod_reduce) if group is not None else None
    for turn, (old, new) in enumerate(zip(MOVES, [*MOVES[1:], None])):
        if trainer is not None and WORLD.rank in old:
            with trainer.reducing():
                advance(trainer, case, min(STEPS, 3 * (turn + 1)))
        if new is None or WORLD.rank not in {*old, *new}:
            continue
        if trainer is None or WORLD.rank not in old:
            trainer = Trainer(case, 3, joining(new, WORLD.rank), reducer=horovod_reduce)
        resize(trainer, WORLD, old, new, 510 + 10 * turn, SECONDS)
    if trainer is not None and WORLD.rank in MOVES[-1]:
        checkpoint = trainer.snapshot()
        trainer.group.close()
        assert checkpoint is not None
        write(folder / f"{case.name}-moved.h5", checkpoint)


def failing(before_start: bool) -> str:
    """The last member raises, before Horovod starts or while the others wait for its gradients."""
    try:
        with Group.form(WORLD, range(WORLD.size), 600 + 2 * before_start, SECONDS) as group:
            trainer = Trainer(Case("mlp", "sgd", WORLD.size), WORLD.size, group, reducer=horovod_reduce)
            if before_start and WORLD.rank == WORLD.size - 1:
                raise ArithmeticError("the loss is nan")
            with trainer.reducing():
                advance(trainer, Case("mlp", "sgd", WORLD.size), 2)
                if WORLD.rank == WORLD.size - 1:
                    raise ArithmeticError("the loss is nan")
                vectors = [torch.ones(1000)]
                trainer._reducer.sum(vectors)
                trainer._reducer.complete()
    except PeerFailed as error:
        return f"PeerFailed {error.rank}: {error.text}"
    except ArithmeticError as error:
        return f"raised: {error}"
    return "went on"


def silent() -> str:
    """Rank 0 gives no gradients, and waits until the others have given up."""
    group = Group.form(WORLD, range(WORLD.size), 700, 0.5)
    everyone = Group.form(WORLD, range(WORLD.size), 702, SECONDS)
    reducer = horovod_reduce(group, WORLD.size, torch.device("cpu"))
    reducer.start()
    said = "elsewhere"
    if WORLD.rank:
        reducer.sum([torch.ones(3)])
        try:
            reducer.complete()
        except PeerSilent as error:
            said = f"PeerSilent {list(error.ranks)}"
    everyone.barrier()
    reducer.stop(False)
    return said


def main(folder: Path) -> None:
    os.environ.update(HOROVOD_CYCLE_TIME="2", HOROVOD_FUSION_THRESHOLD="0")  # together they crash a second start
    torch.set_num_threads(1)
    training(folder)
    seen: dict[str, Any] = {"right": groups_side_by_side()}
    moving(folder)
    seen["failing"] = failing(before_start=False)
    seen["failing before"] = failing(before_start=True)
    seen["right afterwards"] = groups_side_by_side()
    seen["silent"] = silent()
    (folder / f"horovod-{WORLD.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
