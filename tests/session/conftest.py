"""The rooms of a run, part by part: real files, and one rank that is a whole MPI world where ranks are needed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.coordination.protocol import TO_COORDINATOR
from fleet.journal.directory import RunDirectory
from fleet.machine.cluster_map import ClusterMap, Place
from fleet.machine.launch.launched import StopFlag
from fleet.session.books import output_to
from fleet.session.opened import SessionContext, make_ready, open_run
from fleet.session.options import RunOptions
from fleet.session.rank_messages import Broadcast
from fleet.spec import EnsembleSpec
from fleet.workers.rank import Rank, Ties
from fleet.workers.runtime import DataFacts, Rehearsal, Runtime
from fleet.workers.watchdog import Board
from preprocess import Dataset, SampleLayout

SAMPLES, HELD_OUT = 50, 10
LAYOUT = SampleLayout((3, 4, 4), "uint8", (), "int64")
RATES = {"a": {1: 100.0, 2: 190.0}, "b": {1: 50.0}}
DEFAULTS = {
    "data": "numbers",
    "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 48, "widths": [4]}},
    "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
    "virtual_workers": 2,
    "batch_size": 4,
    "stop": {"epochs": 3},
}

Specs = Callable[..., EnsembleSpec]
Runtimes = Callable[..., Runtime]


def a_spec(*jobs: Mapping[str, Any], **sections: Any) -> EnsembleSpec:
    """A spec of these jobs, by default of one called `net`."""
    values = {
        "name": "some",
        "data": {"numbers": {"train": "examples.digits:Digits"}},
        "defaults": DEFAULTS,
        **sections,
    }
    return EnsembleSpec.from_mapping({**values, "jobs": list(jobs) or [{"name": "net"}]})


def a_cluster(trainers: int = 1, preprocessors: int = 1, nodes: int = 1) -> ClusterMap:
    """Ranks on nodes in turn, the preprocessors first; each node has 1 GiB of memory and of shared memory."""
    places = []
    for rank in range(preprocessors + trainers):
        device = rank - preprocessors if rank >= preprocessors else None
        role = "trainer" if device is not None else "preprocessor" if rank else "coordinator+preprocessor"
        node, name = rank % nodes, None if device is None else "cpu"
        places.append(Place(rank, node, f"node-{node}", role, device, name, (0,), 2**30, 2**30, None))
    return ClusterMap(tuple(places))


@pytest.fixture
def spec() -> Specs:
    return a_spec


@pytest.fixture
def runtime() -> Runtimes:
    """Of a spec's jobs and sections; the data set need not be there."""

    def make(*jobs: Mapping[str, Any], rehearsal: bool = False, **sections: Any) -> Runtime:
        made = a_spec(*jobs, **sections)
        facts = {"numbers": DataFacts(SAMPLES, HELD_OUT, LAYOUT)}
        return Runtime(made, facts, Rehearsal(1.0) if rehearsal else None, made.resources.timeout)

    return make


@pytest.fixture
def cluster() -> Callable[..., ClusterMap]:
    return a_cluster


@pytest.fixture
def alone() -> ClusterMap:
    """One rank that plays all roles: whatever is sent comes back to it."""
    return ClusterMap(tuple(replace(place, rank=0) for place in a_cluster().places))


@pytest.fixture
def rank(runtime: Runtimes, tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    """Rank 0 of a world of its own, whatever the cluster map says of others."""
    MPI = pytest.importorskip("mpi4py.MPI")
    world = MPI.COMM_SELF.Dup()

    def make(
        runtime_: Runtime | None = None, cluster: ClusterMap | None = None, datasets: dict[str, Dataset] | None = None
    ) -> Rank:  # fmt: skip
        directory = RunDirectory(tmp_path / "run")
        ties = Ties(world, world, world, Board.alone())
        return Rank(directory, ties, cluster or a_cluster(), runtime_ or runtime(), StopFlag(), datasets or {})

    yield make
    world.Free()


@pytest.fixture
def rehearsed(rank: Callable[..., Rank], runtime: Runtimes, alone: ClusterMap) -> Callable[..., Rank]:
    """Rank 0 of a rehearsal of these jobs, by default of `a` and `b`, whose rates are known."""

    def make(*jobs: Mapping[str, Any], fed: Mapping[int, float] | None = None, **sections: Any) -> Rank:
        named = jobs or ({"name": "a"}, {"name": "b"})
        rates = {job["name"]: RATES[job["name"]] for job in named if job["name"] in RATES}
        rehearse = {"rates": rates, "preprocessors": fed or {}}
        return rank(runtime(*named, rehearsal=True, rehearse=rehearse, **sections), alone)

    return make


def wire_of(me: Rank) -> Broadcast:
    return Broadcast(me.mailbox(TO_COORDINATOR), me.cluster, lambda: None)


@pytest.fixture
def wire() -> Callable[[Rank], Broadcast]:
    return wire_of


@pytest.fixture
def opening(tmp_path: Path) -> Callable[[Rank], AbstractContextManager[SessionContext]]:
    """The second stage of a session, quietly; its journal is closed behind it."""

    @contextmanager
    def opened(me: Rank) -> Iterator[SessionContext]:
        with redirect_stdout(io.StringIO()):
            ready = make_ready(me, RunOptions(tmp_path / "spec.yaml"))
            with output_to(ready.directory, len(me.runtime.spec.jobs)) as output:
                yield open_run(ready, wire_of(me), output)

    return opened
