"""Jobs that move between trainers again and again, without a file. Arguments: folder, way. Under mpiexec with 4 ranks.

Each history ends in a checkpoint; its last segment's master writes it. way: "host" or "device", of sums and moves; the
devices are CPUs, which send over gloo.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from mpi4py import MPI

from tests.trainers.programs.cases import STEPS, Case
from tests.trainers.programs.drive import advance
from trainers import Group, Trainer, write
from trainers.job.resize import joining, resize
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.reduce.ordered_reduce import OrderedReduce, ReducerOf

RANKS = 4
CASES = [Case("cnn", "sgd", 3), Case("mlp", "adam", 3), Case("mlp", "sgd", 4), Case("cnn", "adam", 4)]
CASES += [Case("cnn", "sgd", 8), Case("mlp", "adam", 8)]
CASES += [Case("channels-last", "fused", 3), Case("odd", "fused", 3)]
EACH = 3


@dataclass(frozen=True)
class History:
    """Where a job trains up to which step: (step, ranks, shares), the master first.

    Every other history has balanced shares.
    """

    case: Case
    index: int

    @property
    def name(self) -> str:
        return f"{self.case.name}-history-{self.index}"

    @property
    def segments(self) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """Random draws: seed paths ("resize", name) and ("shares", name). A segment may have no step; the last ends at
        STEPS."""
        draw = random.Random(f"resize/{self.name}")
        ends = sorted(draw.randrange(STEPS) for _ in range(draw.randint(2, 5)))
        most = min(RANKS, self.case.virtual_workers)
        drawn = [(end, tuple(draw.sample(range(RANKS), draw.randint(1, most)))) for end in [*ends, STEPS]]
        uneven = random.Random(f"shares/{self.name}") if self.index % 2 else None
        return [(end, ranks, self._shares(len(ranks), uneven)) for end, ranks in drawn]

    def _shares(self, members: int, draw: random.Random | None) -> tuple[int, ...]:
        """Parts of the virtual workers, each of one or more, any as likely as another."""
        workers = self.case.virtual_workers
        if draw is None:
            return ()
        cuts = [0, *sorted(draw.sample(range(1, workers), members - 1)), workers]
        return tuple(stop - start for start, stop in zip(cuts, cuts[1:]))


HISTORIES = [History(case, index) for case in CASES for index in range(EACH)]


def follow(history: History, world: MPI.Intracomm, tag: int, folder: Path, reducer: ReducerOf) -> None:
    """Go through one history; ranks that have no part in a segment wait at the next that they are in."""
    case, trainer = history.case, None
    old: tuple[int, ...] = ()
    old_shares: tuple[int, ...] = ()
    for number, (until, ranks, shares) in enumerate(history.segments):
        tags = tag + 4 * number
        mine = world.rank in ranks
        if not old:
            if mine:
                group = Group.form(world, ranks, tags, 60, shares)
                trainer = Trainer(case, case.virtual_workers, group, reducer=reducer)
        elif mine or trainer is not None:
            trainer = trainer or Trainer(
                case, case.virtual_workers, joining(ranks, world.rank, shares), reducer=reducer
            )
            if not resize(trainer, world, old, ranks, tags, timeout=60, old_shares=old_shares, new_shares=shares):
                trainer = None
        if trainer is not None:
            with trainer.reducing():
                advance(trainer, case, until)
        old, old_shares = ranks, shares
    if trainer is not None:
        checkpoint = trainer.snapshot()
        if checkpoint is not None:
            write(folder / f"{history.name}.h5", checkpoint)
        trainer.group.close()


def main(folder: Path, way: str) -> None:
    torch.set_num_threads(1)
    reducer: ReducerOf = OrderedReduce if way == "host" else DeviceReducers(Communicators())
    for number, history in enumerate(HISTORIES if way == "host" else HISTORIES[:: EACH // 2 + 1]):
        follow(history, MPI.COMM_WORLD, 1000 * (number + 1), folder, reducer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
