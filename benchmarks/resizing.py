"""A job of 100 MB that goes from 4 trainers to 2 and back: in place, and by checkpoint, exit, restart and resume.

EasyScale (SC'23, 3.2) moves a job through a checkpoint; ElasticFlow (ASPLOS'23) restarts it. Times are of everything
between the last step before and the first step after, from the first trainer that stops to the last that can go on.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.bars import Bar, median_bar
from trainers import Group, Trainer, latest_good, write
from trainers.job.resize import joining, resize
from trainers.state.checkpoint import file_name

REPETITIONS = 5
WIDE, NARROW = (0, 1, 2, 3), (0, 1)
WORKERS, BATCH = 4, 2
LAYERS, WIDTH = 6, 2048  # 6 * (2048 + 1) * 2048 parameters of 4 bytes: 100.7 MB
MPI_OPTIONS = "--oversubscribe --bind-to none --mca osc ^ucx --mca pml ob1 --mca btl self,sm,tcp"
TIMEOUT = 120.0
STEPS_BETWEEN = 1
MOVES = {"4 to 2": (WIDE, NARROW), "2 to 4": (NARROW, WIDE)}


class Wide:
    """A task with 100 MB of parameters, and as much momentum."""

    batch_size = BATCH
    name = "wide"

    def model(self) -> nn.Module:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def dataset(self, train: bool) -> TensorDataset:
        return TensorDataset(torch.zeros(8, WIDTH), torch.zeros(8, dtype=torch.int64))


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure alone."""
    return {"bars": measure(repetitions)}


def measure(repetitions: int = 0) -> list[Bar]:
    """Return the bars: seconds in place each way, and in how many times that a restart does it."""
    places: dict[str, list[float]] = {name: [] for name in MOVES}
    restarts: dict[str, list[float]] = {name: [] for name in MOVES}
    for _ in range(repetitions or REPETITIONS):
        for name, (old, new) in MOVES.items():
            places[name].append(in_place(old, new))
            restarts[name].append(by_restart(old, new))
    bars = []
    for name in MOVES:
        seconds = places[name]
        ratios = [slow / fast for slow, fast in zip(restarts[name], seconds)]
        quick = statistics.median(seconds) < 0.5
        bars.append(median_bar(f"100 MB from {name} trainers in place, s", seconds, "< 0.5", quick))
        times = statistics.median(ratios) >= 10
        bars.append(median_bar(f"restart over in place, {name} trainers", ratios, ">= 10", times))
    return bars


def in_place(old: tuple[int, ...], new: tuple[int, ...]) -> float:
    """Return the seconds of a move from some of the trainers 0 to 3 to others, in the same processes."""
    with tempfile.TemporaryDirectory(prefix="resizing-") as folder:
        _launch(len(WIDE), "move", folder, old, new)
        return _elapsed(Path(folder))


def by_restart(old: tuple[int, ...], new: tuple[int, ...]) -> float:
    """Return the seconds of a move by checkpoint, exit, restart and resume."""
    with tempfile.TemporaryDirectory(prefix="resizing-") as folder:
        _launch(len(old), "leave", folder, old, new)
        _launch(len(new), "resume", folder, old, new)
        return _elapsed(Path(folder))


def _elapsed(folder: Path) -> float:
    stopped, ready = ([float(path.read_text()) for path in folder.glob(f"{word}-*")] for word in ("stopped", "ready"))
    return max(ready) - min(stopped)


def _launch(ranks: int, role: str, folder: str, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    mpiexec = [str(Path(sys.executable).with_name("mpiexec")), *MPI_OPTIONS.split(), "-n", str(ranks)]
    program = [sys.executable, "-m", "mpi4py", "-m", "benchmarks.resizing", role, folder, json.dumps([old, new])]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*mpiexec, *program], env={**os.environ, **root}, capture_output=True, text=True, timeout=TIMEOUT
    )
    if done.returncode:
        raise RuntimeError(f"the ranks of {role!r} failed:\n{done.stdout}{done.stderr}")


# Inside the ranks.


def _take_part(role: str, folder: Path, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    from mpi4py import MPI

    torch.set_num_threads(1)
    {"move": _move, "leave": _leave, "resume": _resume}[role](MPI.COMM_WORLD, folder, old, new)


def _move(world: Any, folder: Path, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    """Newcomers have imported what they need, as ranks of a run have, and have built nothing yet."""
    everyone = Group.form(world, range(world.size), 10, TIMEOUT)
    # As in a run, no part of torch is imported anew when a group is formed.
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], 0.1)
    if world.rank in old:
        trainer = Trainer(Wide(), WORKERS, Group.form(world, old, 20, TIMEOUT))
        _train(trainer)
    everyone.barrier()
    if world.rank in old:
        _step(trainer)
        _note(folder, "stopped", world.rank)
    elif world.rank in new:
        # The order to join comes to a newcomer while the others still train.
        trainer = Trainer(Wide(), WORKERS, joining(new, world.rank))
    if world.rank in old or world.rank in new:
        stays = resize(trainer, world, old, new, 30, TIMEOUT)
        if stays:
            _note(folder, "ready", world.rank)
            _train(trainer)
            trainer.group.close()
    everyone.close()


def _leave(world: Any, folder: Path, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    trainer = Trainer(Wide(), WORKERS, Group.form(world, old, 20, TIMEOUT))
    _train(trainer)
    _note(folder, "stopped", world.rank)
    checkpoint = trainer.snapshot()
    if checkpoint is not None:
        write(folder / file_name(checkpoint), checkpoint)
    trainer.group.close()


def _resume(world: Any, folder: Path, old: tuple[int, ...], new: tuple[int, ...]) -> None:
    group = Group.form(world, new, 20, TIMEOUT)
    trainer = Trainer(Wide(), WORKERS, group)
    trainer.restore(latest_good(folder)[0] if group.is_master else None)
    _note(folder, "ready", world.rank)
    _train(trainer)
    group.close()


def _train(trainer: Trainer) -> None:
    for _ in range(STEPS_BETWEEN):
        _step(trainer)


def _step(trainer: Trainer) -> None:
    batch = torch.ones(BATCH, WIDTH), torch.zeros(BATCH, dtype=torch.int64)
    trainer.step([batch for _ in trainer.workers])


def _note(folder: Path, word: str, rank: int) -> None:
    """Write down the time, of a clock that all processes of the machine share."""
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    (folder / f"{word}-{rank}").write_text(repr(now))


if __name__ == "__main__":
    _take_part(sys.argv[1], Path(sys.argv[2]), *(tuple(ranks) for ranks in json.loads(sys.argv[3])))
