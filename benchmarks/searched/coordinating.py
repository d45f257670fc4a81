"""What rank 0 does in a search of very many trials, all of it for real but the ranks that train."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Any

from benchmarks.bars import at_most
from benchmarks.searched.played_ranks import PlayedRanks
from fleet.journal.directory import RunDirectory
from fleet.machine.cluster_map import ClusterMap, Place
from fleet.machine.launch.launched import StopFlag
from fleet.session.books import output_to
from fleet.session.opened import SessionContext, make_ready, open_run
from fleet.session.options import RunOptions
from fleet.session.rank_messages import Broadcast
from fleet.session.rated import rate_jobs
from fleet.session.running import Throttle, start
from fleet.session.search.first_trials import first_trial
from fleet.spec import EnsembleSpec
from fleet.workers.rank import Rank, Ties
from fleet.workers.runtime import DataFacts, Rehearsal, Runtime
from fleet.workers.watchdog import Board
from preprocess import SampleLayout

TRIALS = 10_000
DEVICES = 8
EPOCH_SECONDS = 10.0  # of a network on one device, as a mean
EPOCHS = 9  # of a whole trial
MEMORY = 2**40


@dataclass(frozen=True)
class Coordinated:
    """A search that was coordinated.

    Attributes:
        trials: how many there were.
        epochs: that were trained.
        cpu: seconds of rank 0's processor.
        seconds: that the run would have taken.
        idle: part of the devices' time in which they have nothing to train although there are new trials.
    """

    trials: int
    epochs: int
    cpu: float
    seconds: float
    idle: float


def measure(repetitions: int) -> dict[str, Any]:
    """Coordinate a search of TRIALS trials.

    Args:
        repetitions: not looked at: one search takes long enough.

    Returns:
        {"bars": [...], "notes": [...]}
    """
    found = coordinated(TRIALS, DEVICES)
    each = 1e3 * found.cpu / found.trials
    return {
        "bars": [at_most(f"rank 0's part of a run of {TRIALS:,} trials, %", 100 * found.cpu / found.seconds, 1.0)],
        "notes": [
            f"Rank 0 took {each:.2f} ms of its processor for each trial, {found.cpu:.1f} s in all, of a search of "
            f"{found.trials:,} trials and {found.epochs:,} epochs on {DEVICES} devices. An epoch takes "
            f"{EPOCH_SECONDS:g} s on a device, as a mean: the run takes {found.seconds:,.0f} s."
        ],
    }


def coordinated(trials: int, devices: int) -> Coordinated:
    """Coordinate a search of so many trials on so many devices."""
    with tempfile.TemporaryDirectory(prefix="coordinating-") as name, _opened(Path(name), trials, devices) as opened:
        ranks = opened.broadcast.mailbox
        assert isinstance(ranks, PlayedRanks)
        seldom = Throttle(lambda: None)  # what is written so takes its part of a run's time, however long that is
        begin = thread_time()
        replace(start(opened, rate_jobs(opened)), writing=seldom, showing=seldom).train()
        cpu = thread_time() - begin - ranks.played
        assert opened.searching is not None and opened.searching.is_over
        jobs = opened.books.ledger.jobs
        until, trained = ranks.latest
        idle = 1 - trained / (devices * until) if until else 0.0
        return Coordinated(len(jobs), sum(job.epoch for job in jobs.values()), cpu, ranks.clock, idle)


@contextmanager
def _opened(folder: Path, trials: int, devices: int) -> Iterator[SessionContext]:
    """A run that is about to begin, whose ranks are played."""
    from mpi4py import MPI

    options, directory = RunOptions(folder / "spec.yaml"), RunDirectory(folder / "run")
    spec = _spec(trials, devices)
    spec = spec.with_jobs((*spec.jobs, *first_trial(spec, directory.path)))
    facts = {"numbers": DataFacts(100, 0, SampleLayout((8,), "uint8", (), "int64"))}
    runtime = Runtime(spec, facts, Rehearsal(1.0))
    cluster = _cluster(devices)
    world = MPI.COMM_SELF
    rank = Rank(directory, Ties(world, world, world, Board.alone()), cluster, runtime, StopFlag(), {})
    ranks = PlayedRanks(whole=EPOCHS, seconds=EPOCH_SECONDS, folder=directory.checkpoints)
    with redirect_stdout(io.StringIO()):
        ready = make_ready(rank, options)
        with output_to(directory, len(runtime.spec.jobs), spec.search) as output:
            yield open_run(ready, Broadcast(ranks, cluster, lambda: None), output)


def _spec(trials: int, width: int) -> EnsembleSpec:
    model = {"name": "trainers.zoo:MLP", "arguments": {"inputs": 8, "classes": 2}}
    return EnsembleSpec.from_mapping(
        {
            "name": "coordinated",
            "data": {"numbers": {"train": "examples.digits:Digits"}},
            "search": {
                "name": "trial-{trial}",
                "job": {"data": "numbers", "model": model, "stop": {"epochs": EPOCHS}, "batch_size": 20,
                        "optimizer": {"name": "SGD", "arguments": {}}},
                "over": {
                    "model.arguments.widths": {"blocks": {"count": [1, 3], "each": {"choice": [8, 16, 32]}}},
                    "optimizer.arguments.lr": {"log_uniform": [1e-4, 1.0]},
                    "optimizer.arguments.momentum": {"uniform": [0.0, 0.99]},
                },
                "metric": "loss", "sampler": "random", "trials": trials, "width": width,
                "stopping": {"name": "halving", "eta": 3, "rungs": [1, 3, EPOCHS]},
            },
            "policy": {"name": "fifo"},
        }
    )  # fmt: skip


def _cluster(devices: int) -> ClusterMap:
    """Rank 0 makes samples, and each other rank has a device; all on one node."""
    first = Place(0, 0, "node-0", "coordinator+preprocessor", None, None, (0,), MEMORY, MEMORY, None)
    others = (
        Place(number + 1, 0, "node-0", "trainer", number, "cpu", (0,), MEMORY, MEMORY, None)
        for number in range(devices)
    )
    return ClusterMap((first, *others))
