"""What each kind of event costs rank 0 with many networks: all of it is real but for the ranks, which are played.

Real are the coordinator, the executor, the channel to ranks, lanes, mailbox, books, journal and policy. There is no
torch, no sample and no second process.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from subprocess import run
from time import thread_time
from types import SimpleNamespace
from typing import Any, cast

import psutil

from benchmarks.scaled.played_ranks import EPOCHS, PER_NODE, PlayedRanks, cluster_of, written
from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import RunHooks
from fleet.coordination.job_record import JobRecord
from fleet.coordination.live_executor import EnergyShares, LiveExecutor
from fleet.coordination.live_state import LiveState, Recorder, recall
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.open_lanes import AwaitedEpochs, KeptEpochs, LaneGrouping, OpenLanes
from fleet.coordination.protocol import TO_COORDINATOR, AtStep, EpochEnded, Message
from fleet.coordination.worker_channel import WorkerChannel
from fleet.journal.journal import Journal, read_journal
from fleet.machine.launch.launched import StopFlag
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.session.lanes import LaneBook, ring_plan
from fleet.spec import EnsembleSpec
from fleet.spec.job import data_key
from fleet.spec.policies import policy
from fleet.workers.runtime import DataFacts, Runtime
from preprocess import SampleLayout

MEASURED = 200
"""Messages of a kind that are measured, one by one."""
RARE = 25
"""Ends, arrivals and losses that are."""
_LATER = 1e6
"""When the first of those networks comes that come while others train."""


@dataclass(frozen=True)
class EventCosts:
    """Rank 0's work for a run whose networks all train.

    Attributes:
        networks, nodes: how many train at once, and where.
        starting: seconds of CPU until all train.
        sent, megabytes: messages of rank 0 until then.
        milliseconds: medians of CPU by kind of event: "step", "epoch", "checkpoint": a message of a master; "end": of a
            network, with the plan and the start of another one; "arrival": of one that has to wait, with the plan;
            "loss": of a trainer.
        stopping: seconds of CPU until all have left after a signal.
        resuming: seconds of CPU in which the next session reads the books from the journal.
        mebibytes: by which the process has grown, with the spec of all networks.
    """

    networks: int
    nodes: int
    starting: float
    sent: int
    megabytes: float
    milliseconds: Mapping[str, float]
    stopping: float
    resuming: float
    mebibytes: float


def measured_apart(networks: int, name: str) -> EventCosts:
    """The costs with so many networks on as many devices under a policy, from a process of its own."""
    words = [sys.executable, "-m", "benchmarks.scaled.coordinator", str(networks), name]
    done = run(words, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"the run with {networks} networks failed: {done.stderr[-2000:]}")
    return EventCosts(**json.loads(done.stdout.splitlines()[-1]))


def event_costs(networks: int, name: str) -> EventCosts:
    """Coordinate so many networks on as many devices under a policy, and others that wait and come."""
    process = psutil.Process()
    before = process.memory_info().rss
    played = _Run(networks, name)
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        path = Path(folder) / "journal.jsonl"
        ranks = played.coordinated(path)
        grown = process.memory_info().rss - before
        begin = thread_time()
        recall(played.ledger(), read_journal(path))
        resuming = thread_time() - begin
    spent = ranks.seconds
    return EventCosts(
        networks,
        networks // PER_NODE,
        sum(spent.pop("start")),
        ranks.sent,
        ranks.bytes / 1e6,
        {kind: 1e3 * median(spent[kind]) for kind in ("step", "epoch", "checkpoint", "end", "arrival", "loss")},
        sum(spent["stop"]),
        resuming,
        grown / 2**20,
    )


class _Run:
    """One run with its clock, its jobs and what happens to them."""

    def __init__(self, networks: int, name: str) -> None:
        self.now = 0.0
        self._name, self._networks = name, networks
        self._stop, self._lost = StopFlag(), set[int]()
        self._cluster = cluster_of(networks // PER_NODE)
        jobs = [{"name": f"net-{number:05}", "seed": number} for number in range(networks + 2 * RARE)]
        spec = EnsembleSpec.from_mapping({**_SPEC, "jobs": jobs})
        self._key = data_key(spec.jobs[0])
        self._runtime = Runtime(spec, {self._key: DataFacts(60_000, 10_000, SampleLayout((224, 224, 3), "uint8"))})

    def ledger(self) -> LiveState:
        """The books of the run before it begins."""
        cluster = Cluster((PER_NODE,) * len(self._cluster.nodes))
        return LiveState(cluster, list(map(self._record, range(len(self._runtime.spec.jobs)))), seed=0)

    def _record(self, number: int) -> JobRecord:
        job = self._runtime.spec.jobs[number]
        curve = RateCurve({1: 9.0}, per_node=PER_NODE)
        comes = _LATER * max(0, number - self._networks - RARE + 1)
        state = JobState(
            job.name, curve, 4, arrival=comes, remaining=EPOCHS * 60_000.0 + number, epoch=60_000.0, data=self._key
        )
        return replace(JobRecord.of(state, f"{self._key}/{job.order_seed}"), guessed=True)

    def coordinated(self, path: Path) -> PlayedRanks:
        """Coordinate the run until a signal stops it."""
        ledger, ranks = self.ledger(), PlayedRanks(self._said)
        journal = Journal(path, lambda: self.now)
        books = Recorder(ledger, journal)
        rank = cast(Any, SimpleNamespace(runtime=self._runtime, cluster=self._cluster))
        ring = ring_plan(self._runtime, len(self._cluster.trainers), len(self._cluster.preprocessors))
        crew = WorkerChannel(
            Mailbox(cast(Any, ranks), TO_COORDINATOR), self._cluster, lambda: None, lambda: frozenset(self._lost)
        )
        awaited = AwaitedEpochs(ledger, searches=False)
        lanes = OpenLanes(
            crew, LaneBook(rank, ring, awaited.first), ring.lanes, LaneGrouping(ledger), KeptEpochs(crew, awaited)
        )
        tags = iter(range(1000, sys.maxsize))
        energy = EnergyShares((), lambda ranks: None, books.record)
        executor = LiveExecutor(crew, lanes, lambda: next(tags), self._stop, lambda skipped: None, (1, 1, 1.0), energy)
        around = _Around(self._stop)
        Coordinator(policy(self._name), executor, books, around, silence=math.inf, poll=math.inf).run()
        ranks.settle()
        journal.close()
        return ranks

    def _said(self, ranks: PlayedRanks) -> Iterator[tuple[str, Message | None]]:
        for kind, message in self._happens(ranks):
            self.now += 0.001
            yield kind, message

    def _happens(self, ranks: PlayedRanks) -> Iterator[tuple[str, Message | None]]:
        names = list(ranks.groups)[:MEASURED]
        metrics = {"loss": 1.0, "accuracy": 0.5}
        yield "timed", AtStep(names[0], 0, 1, 100, 10.0)  # the policy hears now how fast all are
        for job in names:
            yield "step", AtStep(job, 0, 1, 100, 10.0)
        for job in names:
            yield "epoch", EpochEnded(job, 1, 100, 100.0, 10.0, metrics, 0.1, (0.1,), (0.1,), (90.0,))
        for job in names:
            yield "checkpoint", written(job, 1)
        for job in list(ranks.groups)[:RARE]:
            for word in ranks.last_words(job, "done", "epochs") if job in ranks.groups else ():
                yield "end", word
        for number in range(RARE):
            self.now = max(self.now, _LATER * (number + 1))
            yield "arrival", AtStep(next(iter(ranks.groups)), 0, 2, 100, 10.0)
        for group in list(ranks.groups.values())[-RARE:]:
            if ranks.groups.pop(group.job, None) is not None:
                self._lost.add(group.members[0])
                yield "loss", None
        self._stop.set()
        yield "stop", AtStep(next(iter(ranks.groups)), 0, 3, 100, 10.0)


class _Around(RunHooks):
    """A signal comes from outside, and what is guessed of a network that nobody has measured."""

    def __init__(self, stop: StopFlag) -> None:
        self._stop = stop

    def stop_requested(self) -> bool:
        return self._stop.raised

    def guess(self, job: str) -> float:
        return 10.0


_SPEC = {
    "name": "scale",
    "data": {"digits": {"train": {"source": "preprocess:DrawnDigits"}}},
    "defaults": {
        "data": "digits",
        "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 64}},
        "virtual_workers": 4,
        "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
        "loss": "cross_entropy",
        "batch_size": 8,
        "stop": {"epochs": EPOCHS},
    },
}


if __name__ == "__main__":
    print(json.dumps(asdict(event_costs(int(sys.argv[1]), sys.argv[2]))))
