"""CPU of a rank from its first import until it knows the spec and the cluster map, in a process of its own.

The world is played: rank 0 gathers as many answers as there are ranks, and another rank hears what rank 0 has said.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

PER_NODE = 8
_MORE = 12  # bytes by which an answer may be longer than rank 0's
_SPEC = """
name: many
data: {{digits: {{train: {{source: "preprocess:DrawnDigits"}}}}}}
defaults:
  data: digits
  model: {{name: "trainers.zoo:MLP", arguments: {{widths: [32]}}}}
  optimizer: {{name: SGD, arguments: {{lr: 0.1}}}}
  batch_size: 64
  stop: {{epochs: 2}}
jobs:
  - grid: {{name: "n{{seed}}", over: {{seed: {seeds}}}}}
resources: {{trainers: {trainers}, preprocessors: {nodes}, device: cpu}}
"""


@dataclass(frozen=True)
class StartCosts:
    """Seconds of CPU beside MPI and torch.

    Attributes:
        imports: what the project and its libraries take to load.
        knowing: the spec and the cluster map.
        megabytes: by which memory grew as these became known.
    """

    imports: float
    knowing: float
    megabytes: float

    @property
    def whole(self) -> float:
        """All of it."""
        return self.imports + self.knowing


def start_costs(jobs: int, nodes: int) -> tuple[StartCosts, StartCosts]:
    """What rank 0 and the last trainer take, with so many jobs, and a preprocessor and PER_NODE trainers a node."""
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        folder = Path(name)
        text = _SPEC.format(seeds=list(range(jobs)), trainers=PER_NODE * nodes, nodes=nodes)
        (folder / "many.yaml").write_text(text)
        size = (PER_NODE + 1) * nodes
        return _started(folder, 0, size), _started(folder, size - 1, size)


def _started(folder: Path, rank: int, size: int) -> StartCosts:
    command = [sys.executable, "-m", __name__, str(folder), str(rank), str(size)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600, env=environment)
    return StartCosts(**json.loads(run.stdout.splitlines()[-1]))


class PlayedWorld:
    """All ranks, as one of them sees them: the others answer rank 0 as it does, from nodes of their own.

    Args:
        said: what rank 0 has told all; it is added to where this is rank 0.
    """

    def __init__(self, rank: int, size: int, said: list[Any]) -> None:
        self.rank, self.size, self.said = rank, size, said
        self._heard = iter(tuple(said))

    def Split_type(self, kind: int) -> PlayedWorld:
        return self

    def Allreduce(self, place: Any, value: Any, op: Any) -> None:
        """Leave the value: this rank is the lowest of its node."""

    def Free(self) -> None:
        """Do nothing: it is no communicator."""

    def Bcast(self, data: Any, root: int) -> None:
        if self.rank == root:
            self.said.append(np.array(data))
        else:
            data[:] = next(self._heard)

    def Gather(self, mine: Any, everybody: Any, root: int) -> None:
        if self.rank == root:
            everybody[0], everybody[1:] = mine[0], mine[0] + _MORE

    def Gatherv(self, mine: Any, everybody: Any, root: int) -> None:
        if self.rank != root:
            return
        data, sizes = everybody
        data[: sizes[0]] = mine
        text, at = mine.tobytes(), int(sizes[0])
        for rank in range(1, self.size):
            node = rank // (PER_NODE + 1) * (PER_NODE + 1)
            answer = text.replace(b'"node": 0,', b'"node": %d,' % node).ljust(sizes[rank])
            data[at : at + sizes[rank]] = np.frombuffer(answer, dtype=np.uint8)
            at += int(sizes[rank])


def _main(folder: Path, rank: int, size: int) -> StartCosts:
    import psutil
    import torch
    from mpi4py import MPI

    assert torch.__version__ and MPI.COMM_SELF.size == 1  # both are loaded, which is not counted
    begin = process_time()
    import fleet.commands.run
    from fleet.machine.cluster_map import discover
    from fleet.session.main import _read_spec
    from fleet.session.options import RunOptions
    from fleet.workers.agreement import agree_on_spec

    if rank == 0:
        import fleet.session.coordinator_rank
        import fleet.session.whole_spec
    else:
        import fleet.workers.trainer_rank  # noqa: F401
    loaded, before = process_time(), psutil.Process().memory_info().rss
    told = folder / "said.npz"
    world: Any = PlayedWorld(rank, size, [] if rank == 0 else list(np.load(told).values()))
    options, begun = RunOptions(folder / "many.yaml"), process_time()
    spec = agree_on_spec(world, lambda: _read_spec(options, size), folder)
    asked = spec.resources
    cluster = discover(world, asked.preprocessors, asked.device, kinds=asked.kinds)
    if rank == 0:
        json.dumps(cluster.record())
        used = process_time() - begun
        np.savez(told, *world.said)
    else:
        place = cluster.places[rank]
        assert place.is_trainer and cluster.rank_of(len(cluster.trainers) - 1) == rank
        assert spec.job(f"n{place.device}").batch_size == 64
        used = process_time() - begun
    return StartCosts(loaded - begin, used, (psutil.Process().memory_info().rss - before) / 2**20)


if __name__ == "__main__":
    print(json.dumps(vars(_main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
