"""Journals of plausible runs, made as pure data, and a browser to look at the page."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

Event = dict[str, Any]


@dataclass
class SimulatedRun:
    """Writes the journal of a run of flotillas: profiling, plans, epochs, checkpoints, failures, perhaps a kill."""

    jobs: int = 8
    devices_per_node: tuple[int, ...] = (4,)
    epochs: int = 4
    seed: int = 0
    failing: tuple[int, ...] = ()
    killed_after: float | None = None
    name: str = "net-{}"
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = 0.0
        self.size = sum(self.devices_per_node)
        self.names = [self.name.replace("{}", str(index)) for index in range(self.jobs)]
        self.speeds = {name: self.random.uniform(80, 500) for name in self.names}
        self.finished = dict.fromkeys(self.names, 0)
        self.waiting_jobs = list(self.names)
        self.sessions = 0
        self.number = 0

    def write(self, event: str, at: float | None = None, **keys: Any) -> None:
        time = self.now if at is None else at
        self.events.append({"t": round(time, 6), "unix": 1.7e9 + time, "event": event, **keys})

    def run(self) -> list[Event]:
        """All events of the run."""
        self.open_session()
        self.profile()
        while self.waiting_jobs:
            if self.killed_after is not None and self.now >= self.killed_after and self.sessions == 1:
                self.kill_in_the_middle()
            self.flotilla()
        self.write(
            "ended", status="failed" if self.failing else "done", wall_seconds=self.now, overhead_seconds=self.cost()
        )
        return self.events

    def cost(self) -> dict[str, float]:
        def total(kind: str) -> float:
            return sum(float(e["seconds"]) for e in self.events if e["event"] == kind)

        kinds = {"profiling": "profile", "scheduling": "planned", "checkpoint": "checkpoint", "reforming": "started"}
        return {name: total(kind) for name, kind in kinds.items()}

    def open_session(self) -> None:
        self.write(
            "session",
            session=self.sessions,
            fleet="0.1.0",
            versions={"python": "3.11.7", "torch": "2.13.0"},
            host="node-0",
            spec_hash="9f2c",
            policy="flotilla",
            policy_parameters={"alpha": 0.8},
            rehearsal=None,
        )
        self.sessions += 1
        ranks: list[Event] = [
            {
                "rank": 0,
                "node": 0,
                "host": "node-0",
                "role": "coordinator+preprocessor",
                "device": None,
                "device_name": None,
                "cores": [0, 1],
            }
        ]
        for node, devices in enumerate(self.devices_per_node):
            for _ in range(devices):
                index = len(ranks)
                ranks.append(
                    {
                        "rank": index,
                        "node": node,
                        "host": f"node-{node}",
                        "role": "trainer",
                        "device": index - 1,
                        "device_name": "GPU",
                        "cores": [2 * index, 2 * index + 1],
                    }
                )
        self.write("cluster", ranks=ranks, devices_per_node=list(self.devices_per_node))
        for index, name in enumerate(self.names):
            self.write(
                "job",
                job=name,
                model="trainers.zoo:CNN",
                parameters=50_000 * (index + 1),
                parameter_bytes=200_000,
                virtual_workers=4,
                batch_size=32,
                seed=index,
                data="digits",
                samples=4096,
                max_epochs=self.epochs,
            )

    def profile(self) -> None:
        for start in range(0, self.jobs, self.size):
            for device, name in enumerate(self.names[start : start + self.size]):
                self.write(
                    "profile",
                    at=self.now + 1.5,
                    job=name,
                    devices=[device],
                    count=1,
                    rate=self.speeds[name],
                    batches=48,
                    seconds=1.5,
                )
            self.now += 1.6
        self.write("preprocessors", counts={"1": 900.0, "2": 1750.0, "4": 3100.0}, demand=1500.0, chosen=2)
        for name in self.names:
            fitted = [self.speeds[name] * m * 0.97 ** (m - 1) for m in range(1, min(self.size, 8) + 1)]
            measured = {"1": self.speeds[name], "2": fitted[1] * 1.04} if len(fitted) > 1 else {"1": self.speeds[name]}
            self.write("rates", job=name, source="profile", measured=measured, fitted=fitted)

    def allocate(self) -> dict[str, list[int]]:
        chosen = self.waiting_jobs[: max(1, self.size - 1)]
        slowest = min(self.speeds[name] for name in chosen)
        allocation: dict[str, list[int]] = {name: [] for name in chosen}
        for device in range(self.size):
            name = max(chosen, key=lambda n: (not allocation[n], 1 / (len(allocation[n]) * self.speeds[n] + slowest)))
            allocation[name].append(device)
        return allocation

    def flotilla(self) -> None:
        allocation = self.allocate()
        paces = dict.fromkeys(allocation, 300.0)
        self.write("planned", round=self.number, allocation=allocation, paces=paces, seconds=0.004)
        begin = self.now
        ends = [self.train(name, devices, begin) for name, devices in allocation.items()]
        self.now = max(ends)
        self.events.sort(key=lambda event: event["t"])
        self.write("round_end", round=self.number, start=begin, end=self.now)
        self.number += 1

    def train(self, name: str, devices: list[int], begin: float) -> float:
        time, number = begin + 0.3, self.number
        self.write(
            "started",
            at=time,
            round=number,
            job=name,
            devices=devices,
            epoch=self.finished[name],
            step=0,
            lane=0,
            stream="digits",
            seconds=0.25,
        )
        fails = self.names.index(name) in self.failing
        for epoch in range(self.finished[name], self.epochs):
            seconds = 4096 / (self.speeds[name] * len(devices) * 0.95) * self.random.uniform(0.95, 1.1)
            time += seconds
            if fails and epoch == 1:
                self.write(
                    "failed",
                    at=time,
                    round=number,
                    job=name,
                    devices=devices,
                    epoch=epoch,
                    error=f"ValueError: {name} <b>",
                    traceback="Traceback (most recent call last):\n  ValueError",
                )
                self.write("warning", at=time, text=f"{name} failed & was left out", job=name)
                self.waiting_jobs.remove(name)
                return time
            self.write("epoch", at=time, **self.epoch(name, devices, epoch, seconds))
            self.write(
                "checkpoint",
                at=time + 0.05,
                job=name,
                epoch=epoch,
                step=32 * (epoch + 1),
                path=f"checkpoints/{name}/{epoch}.h5",
                bytes=1 << 20,
                seconds=0.05,
                digest="ab",
            )
            time += 0.05
        metrics = self.metrics(name, self.epochs)
        self.write(
            "done",
            at=time,
            round=number,
            job=name,
            devices=devices,
            epoch=self.epochs,
            why="epochs",
            metrics=metrics,
            checkpoint=f"checkpoints/{name}/{self.epochs}.h5",
        )
        self.waiting_jobs.remove(name)
        return time

    def epoch(self, name: str, devices: list[int], epoch: int, seconds: float) -> Event:
        waited = {str(device): {"data": 0.06 * seconds, "peers": 0.03 * seconds} for device in devices}
        return {
            "round": self.number,
            "job": name,
            "epoch": epoch,
            "step": 32 * (epoch + 1),
            "devices": devices,
            "seconds": seconds,
            "rate": 4096 / seconds,
            "metrics": self.metrics(name, epoch + 1),
            "learning_rate": 0.05,
            "waited": waited,
            "computed": {str(device): 0.85 * seconds for device in devices},
        }

    def metrics(self, name: str, epochs: int) -> dict[str, float]:
        quality = 0.3 + (self.names.index(name) % 7) / 20
        loss = 2.3 * math.exp(-quality * epochs) + 0.03
        return {"loss": loss, "test_loss": loss * 1.1 + 0.02, "accuracy": 1 - 0.35 * loss}

    def kill_in_the_middle(self) -> None:
        """A flotilla that trains one epoch of each job, then the run is killed; a new session trains it again."""
        allocation = self.allocate()
        self.write("planned", round=self.number, allocation=allocation, paces={}, seconds=0.004)
        for name, devices in allocation.items():
            self.write(
                "started",
                at=self.now + 0.3,
                round=self.number,
                job=name,
                devices=devices,
                epoch=0,
                step=0,
                lane=0,
                stream="digits",
                seconds=0.25,
            )
        self.now += 10
        for name, devices in allocation.items():
            self.write("epoch", **self.epoch(name, devices, 0, 9.7))
        self.now += 2
        self.number += 1
        self.open_session()


@pytest.fixture
def simulated() -> Callable[..., list[Event]]:
    """A function that makes the events of a plausible run; see SimulatedRun for its keys."""

    def simulate(**keys: Any) -> list[Event]:
        return SimulatedRun(**keys).run()

    return simulate


@pytest.fixture
def write_journal(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes events as the journal of a new run directory and returns the directory."""

    def write(events: list[Event], tail: str = "", name: str = "run") -> Path:
        directory = tmp_path / name
        directory.mkdir()
        text = "".join(json.dumps(event) + "\n" for event in events)
        (directory / "journal.jsonl").write_text(text + tail)
        return directory

    return write
