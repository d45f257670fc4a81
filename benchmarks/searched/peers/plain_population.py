"""Population-based training as a plain loop: two processes, each with half of the members, which wait for each other
after each interval. Argument: the folder with the plan, whose rungs are the ends of the intervals.

What a member takes from another one lies in files, which are not synced: nobody could go on after a kill.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
from pathlib import Path
from typing import Any, cast

from benchmarks.searched.peers.plain_training import PlainTraining
from benchmarks.searched.peers.plan import Plan

WORKERS = 2
QUANTILE = 0.25
FACTORS = (0.8, 1.25)
SECONDS = 300.0  # that one waits for the other


def main(folder: Path) -> None:
    """Train the population."""
    count, context = len(Plan.read(folder).trials), multiprocessing.get_context("spawn")
    barrier, values = context.Barrier(WORKERS, timeout=SECONDS), cast(Any, context.Array("d", count))
    arguments = [(folder, number, barrier, values) for number in range(WORKERS)]
    workers = [context.Process(target=_work, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        sys.exit(1)
    print("best", max(values))


def _work(folder: Path, number: int, barrier: Any, values: Any) -> None:
    plan = Plan.read(folder)
    mine = {trial: PlainTraining(folder, trial) for trial in range(number, len(plan.trials), WORKERS)}
    for end in plan.rungs:
        for trial, member in mine.items():
            *_, values[trial] = member.epochs(end)
            member.save(folder / f"{trial}.pt")
        barrier.wait()
        if end == plan.epochs:
            return
        order = sorted(range(len(plan.trials)), key=lambda trial: (-values[trial], trial))
        draw, few = random.Random(f"{plan.seed} {end}"), max(1, int(len(order) * QUANTILE))
        for trial in order[-few:]:
            donor, factor = order[draw.randrange(few)], FACTORS[draw.randrange(2)]
            if trial in mine:
                mine[trial].load(folder / f"{donor}.pt")
                mine[trial].perturb(factor)
        barrier.wait()  # before the files change


if __name__ == "__main__":
    main(Path(sys.argv[1]))
