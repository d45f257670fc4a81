"""A run directory of very many networks, written by a run's own books: rank 0's bookkeeper, ledger and journal.

Networks train one after the other on single devices, as under the policy `local`, on a clock that only counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fleet.coordination.coordinator import end_of, epoch_of
from fleet.coordination.executor import GroupEnded
from fleet.coordination.job_record import UNRATED, JobRecord
from fleet.coordination.live_state import LiveState, Recorder
from fleet.coordination.protocol import CheckpointWritten, EpochEnded
from fleet.journal import events
from fleet.journal.journal import Journal
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve

SAMPLES = 5000
WORKERS = 4
BATCH = 128


@dataclass
class _Clock:
    """Seconds, which only pass when somebody says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class ManyNetworks:
    """What is written.

    Attributes:
        networks, epochs: how many, and how many each trains.
        nodes, devices_per_node: of the machine.
        trained: the share of the networks that are done when the run is looked at; the next ones are under way.
    """

    networks: int = 10_000
    epochs: int = 5
    nodes: int = 8
    devices_per_node: int = 8
    trained: float = 0.9

    def write(self, directory: Path) -> Path:
        """Write the journal; the directory, which is made, is returned."""
        directory.mkdir(parents=True, exist_ok=True)
        clock = _Clock()
        with closing(Journal(directory / "journal.jsonl", clock)) as journal:
            _Run(self, Recorder(self._ledger(), journal), clock).play()
        return directory

    def name(self, number: int) -> str:
        """Of a network."""
        return f"network-{number:05}"

    def rate(self, number: int) -> float:
        """Samples/s of a network on one device."""
        return 500.0 + number % 97 * 25.0

    def _ledger(self) -> LiveState:
        states = (
            JobState(
                self.name(number),
                UNRATED,
                WORKERS,
                batch=BATCH,
                remaining=self.epochs * SAMPLES,
                epoch=SAMPLES,
                data="pictures",
            )  # fmt: skip
            for number in range(self.networks)
        )
        jobs = [JobRecord.of(state, "pictures/0") for state in states]
        return LiveState(Cluster((self.devices_per_node,) * self.nodes), jobs, seed=0)


@dataclass
class _Run:
    """The events of one session, in their order, as rank 0 would have booked them."""

    asked: ManyNetworks
    books: Recorder
    clock: _Clock
    rounds: int = 0

    def play(self) -> None:
        """Book all until so many networks are done that others are in the middle."""
        self._first_words()
        waiting = iter(range(self.asked.networks))
        size = self.asked.nodes * self.asked.devices_per_node
        ends: list[tuple[float, int, int, int]] = []  # of the next epoch: second, device, network, epoch
        for device in range(size):
            self._start(next(waiting), device, ends)
        done = 0
        while ends and done < self.asked.trained * self.asked.networks:
            self.clock.now, device, network, epoch = heapq.heappop(ends)
            self._epoch(network, device, epoch)
            if epoch < self.asked.epochs:
                self._expect(network, device, epoch + 1, ends)
                continue
            self._done(network, device)
            done += 1
            self._start_next(waiting, device, ends)

    def _first_words(self) -> None:
        journal, asked = self.books.journal, self.asked
        journal.write(
            events.Session(
                session=0,
                fleet="0",
                versions={},
                host="node-0",
                spec_hash="",
                policy="local",
                policy_parameters={},
                rehearsal=None,
                name="many",
                reduce="mpi",
            )
        )
        per_node = asked.devices_per_node
        ranks = tuple(
            events.Rank(
                rank=device + 1,
                node=device // per_node,
                host=f"node-{device // per_node}",
                role="trainer",
                device=device,
                device_name=f"cuda:{device % per_node}",
            )
            for device in range(asked.nodes * per_node)
        )
        journal.write(events.Cluster(ranks=ranks, devices_per_node=(per_node,) * asked.nodes))
        for number in range(asked.networks):
            journal.write(
                events.Job(
                    job=asked.name(number),
                    model="trainers.zoo:CNN",
                    parameters=20_000 + number,
                    parameter_bytes=80_000,
                    virtual_workers=WORKERS,
                    batch_size=BATCH // WORKERS,
                    seed=number,
                    order_seed=0,
                    data="pictures",
                    samples=SAMPLES,
                    part=None,
                    max_epochs=asked.epochs,
                    arrival=0.0,
                    deadline=None,
                    due=None,
                    priority=0,
                    guaranteed=False,
                    minimum_devices=1,
                )
            )
        for number in range(asked.networks):
            curve = RateCurve({1: asked.rate(number)}, per_node=per_node, workers=WORKERS)
            self.books.record_rates(asked.name(number), {"": curve}, "file")

    def _start_next(self, waiting: Iterator[int], device: int, ends: list[tuple[float, int, int, int]]) -> None:
        network = next(waiting, None)
        if network is not None:
            self._start(network, device, ends)

    def _start(self, network: int, device: int, ends: list[tuple[float, int, int, int]]) -> None:
        name, running = self.asked.name(network), self.books.state.running
        allocation = {**running, name: (device,)}
        paces = {job: self.books.state.pace(job, devices) for job, devices in allocation.items()}
        self.books.record(events.Planned(round=self.rounds, allocation=allocation, paces=paces, seconds=0.001))
        self.books.record(
            events.Started(
                round=self.rounds,
                job=name,
                devices=(device,),
                epoch=0,
                step=0,
                lane=device,
                stream="pictures/0/0",
                moved=False,
            )
        )
        self.rounds += 1
        self._expect(network, device, 1, ends)

    def _expect(self, network: int, device: int, epoch: int, ends: list[tuple[float, int, int, int]]) -> None:
        heapq.heappush(ends, (self.clock.now + SAMPLES / self.asked.rate(network), device, network, epoch))

    def _epoch(self, network: int, device: int, epoch: int) -> None:
        name, rate = self.asked.name(network), self.asked.rate(network)
        metrics = {"loss": 2.0 / epoch, "accuracy": 1.0 - 0.5 / epoch, "test_loss": 2.1 / epoch}
        seconds, step = SAMPLES / rate, epoch * SAMPLES // BATCH
        event = EpochEnded(name, epoch, step, seconds, rate, metrics, 0.1, (0.5,), (0.0,), (seconds - 0.5,))
        self.books.record(epoch_of(event, self.rounds - 1, (device,)))
        path = f"checkpoints/{name}/step-{step:08}.h5"
        written = CheckpointWritten(name, epoch, step, path, 250_000, 0.01, "0" * 64)
        self.books.record(events.Checkpoint(**vars(written)))

    def _done(self, network: int, device: int) -> None:
        name, job = self.asked.name(network), self.books.state.jobs[self.asked.name(network)]
        ended = GroupEnded(name, (device,), "done", "epochs", self.asked.epochs, 0)
        self.books.record(end_of(ended, self.rounds - 1, job))
