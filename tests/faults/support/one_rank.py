"""A whole run in one process: `one_rank.py SPEC OUT`. Rank 0's part and the trainer's part are threads of it.

All that a run writes, reads and says is the real thing, and so are its exit codes; only the messages stay at home. It
needs no launcher, so that thousands of starts can be tried.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fleet.coordination.protocol import MakeRing
from fleet.journal.directory import RunDirectory
from fleet.machine.cluster_map import ClusterMap, pretended
from fleet.machine.launch.launched import StopFlag
from fleet.session import measuring
from fleet.session.coordinator_rank import coordinate
from fleet.session.main import open_data
from fleet.session.options import RunOptions
from fleet.session.whole_spec import whole_spec
from fleet.spec import importable
from fleet.workers.agreement import THREAD_END_SECONDS, agree_on_spec, ends_all, exit_code
from fleet.workers.rank import GuardedThread, Rank, Ties
from fleet.workers.runtime import Runtime
from fleet.workers.trainer_rank import TrainerRank
from fleet.workers.watchdog import Board
from preprocess.making import dataset
from preprocess.ring.ring import Ring

if TYPE_CHECKING:
    from mpi4py import MPI


class OneRank(Rank):
    """The rank that plays all parts: they share its ring."""

    _ring: Ring | None = None
    _making = threading.Lock()

    def make_ring(self, order: MakeRing) -> Ring:
        with self._making:
            self._ring = self._ring or super().make_ring(order)
            return self._ring


class OnePlace(ClusterMap):
    """A preprocessor and a trainer, both rank 0."""

    @classmethod
    def make(cls) -> OnePlace:
        return cls(tuple(replace(place, rank=0) for place in pretended((1,), 1, "cpu", "here").places))

    def ranks_of(self, node: int) -> tuple[int, ...]:
        return (0,)


def take_part(options: RunOptions, world: MPI.Intracomm) -> int:
    """As `fleet.session.main` does it on each rank."""
    folder = options.spec.parent
    spec = agree_on_spec(world, lambda: whole_spec(options), folder)
    with importable([folder, Path.cwd()]):
        cluster = OnePlace.make()
        datasets, facts, _ = open_data(world, cluster, spec)
        runtime = Runtime(spec, facts, None, spec.resources.timeout)
        torch.set_num_threads(spec.resources.threads)
        ties = Ties(world, world, world.Dup(), Board.alone())
        rank = OneRank(RunDirectory(options.directory(spec)), ties, cluster, runtime, StopFlag(), datasets)
        trainer = TrainerRank(rank, torch.device("cpu"))
        training = GuardedThread(partial(exit_code, world, trainer.run), "trainer")
        with ends_all(world):
            code = coordinate(rank, options)
        for thread in (training, *rank.threads):
            thread.join(THREAD_END_SECONDS)
        rank.flush()
        return code


def keep_generators_apart() -> None:
    """Let the preprocessor not seed the generators of the process, from which the trainer draws."""
    vars(dataset)["seed_global_generators"] = lambda generator: generator.integers(2**32)


def main(spec: str, out: str) -> None:
    """Run it, and end with its code."""
    from mpi4py import MPI

    keep_generators_apart()
    measuring.THROUGHPUT_SECONDS = 0.01  # one preprocessor is enough
    options = RunOptions(Path(spec), out=Path(out))
    sys.exit(exit_code(MPI.COMM_WORLD, partial(take_part, options, MPI.COMM_WORLD)))


if __name__ == "__main__":
    main(*sys.argv[1:])
