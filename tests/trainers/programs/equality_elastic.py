"""Elastic trainers as a service, under mpiexec. Reads histories from rank 0's standard input, one JSON object a line.

{"task", "virtual_workers", "folder", "reply", "every", "segments": [{"ranks", "until", "how"}, ...], "kill", "broken"}

A job begins on the first segment's ranks, from the newest checkpoint in `folder` if there is one, and trains up to step
`until`. It goes to the next segment's ranks by a checkpoint's file (how: "file") or in place ("resize"). A checkpoint
is written every `every` steps (0: never). kill: [step, member], who is killed while it reads a batch of that step.
broken: a rule to break (see `equality_broken_rules`), or null.
The masters write the states after epochs and segments to `reply`.SEGMENT; then rank 0 prints a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI
from torch.utils.data import default_collate

from tests.trainers.support.equality_broken_rules import broken
from tests.trainers.support.equality_gans import GANS, GanTask
from tests.trainers.support.equality_states import States, merged, state
from tests.trainers.support.equality_tasks import TASKS, EqualityTask
from trainers import Checkpoint, Group, Trainer, file_name, latest_good, prune, write
from trainers.job.resize import joining, resize
from trainers.task.task import order_seed_of

WORLD = MPI.COMM_WORLD
ORDER, READY, FINISHED = 1, 2, 3  # tags of the service's own messages
SECONDS = 120.0


def wait(source: int, tag: int) -> Any:
    """Return a message; unlike MPI's own wait this leaves the cores to those who train."""
    while not WORLD.Iprobe(source, tag):
        time.sleep(0.003)
    return json.loads(WORLD.recv(source=source, tag=tag))


def states_of(checkpoint: Checkpoint) -> list[dict[str, str]]:
    optimizers = merged([update["optimizer"] for update in checkpoint.updates])
    return [
        state(checkpoint.parameters.items(), worker["buffers"].items(), optimizers, checkpoint.task_state)
        for worker in checkpoint.workers
    ]


class History:
    """One rank's part in one history."""

    def __init__(self, request: dict[str, Any], tag: int) -> None:
        self.request, self.tag = request, tag
        self.task: EqualityTask | GanTask = (TASKS.get(request["task"]) or GANS[request["task"]]).fresh()
        self.data = self.task.dataset(True)
        self.segments = request["segments"]
        self.folder = Path(request["folder"])
        self.trainer: Trainer | None = None
        self.states: States = {}

    def run(self) -> None:
        for number, segment in enumerate(self.segments):
            self.enter(number, segment)
            if self.trainer is not None:
                self.states = {}
                self.train(self.trainer, segment["until"])
                self.leave(number, self.trainer)

    def enter(self, number: int, segment: dict[str, Any]) -> None:
        """Become a member of the segment's group, if its ranks say so."""
        ranks, workers = segment["ranks"], self.request["virtual_workers"]
        old = self.segments[number - 1]["ranks"] if number else []
        tag = self.tag + 4 * number
        if number and segment["how"] == "resize":
            if WORLD.rank in ranks and WORLD.rank not in old:
                self.trainer = Trainer(self.task.fresh(), workers, joining(ranks, WORLD.rank))
            if self.trainer is not None and not resize(self.trainer, WORLD, old, ranks, tag, SECONDS):
                self.trainer = None
            return
        if WORLD.rank not in ranks:
            return
        if number:
            wait(old[0], READY)
        group = Group.form(WORLD, ranks, tag, SECONDS)
        self.trainer = Trainer(self.task.fresh(), workers, group)
        saved = latest_good(self.folder)[0] if group.is_master else None
        if group.agree(int(saved is not None)):
            self.trainer.restore(saved)

    def train(self, trainer: Trainer, until: int) -> None:
        count, seed = len(self.data), order_seed_of(self.task)  # type: ignore[arg-type]
        while trainer.steps < until:
            plan = trainer.plan(count)
            order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + trainer.epoch))
            kill = self.request["kill"] == [trainer.steps, trainer.group.index]
            places = [order[plan.positions(worker.rank, trainer.step_in_epoch)].tolist() for worker in trainer.workers]
            calls: list[Callable[[], Any]] = [partial(self.batch, indices, kill) for indices in places]
            trainer.step(calls)
            if trainer.step_in_epoch == plan.steps_per_epoch:
                trainer.finish_epoch({})
                self.look(trainer)
            if self.request["every"] and trainer.steps % self.request["every"] == 0:
                self.save(trainer)
        self.look(trainer)

    def batch(self, indices: list[int], kill: bool) -> Any:
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return default_collate([self.data[index] for index in indices])  # type: ignore[index]

    def look(self, trainer: Trainer) -> None:
        checkpoint = trainer.snapshot()
        if checkpoint is not None:
            self.states[str(trainer.steps)] = states_of(checkpoint)

    def save(self, trainer: Trainer) -> None:
        checkpoint = trainer.snapshot()
        if checkpoint is not None:
            write(self.folder / file_name(checkpoint), checkpoint)
            prune(self.folder, 2)

    def leave(self, number: int, trainer: Trainer) -> None:
        """Tell what was seen, and part unless the trainer stays for the next segment."""
        if trainer.group.is_master:
            Path(f"{self.request['reply']}.{number}").write_text(json.dumps(self.states))
        following = self.segments[number + 1] if number + 1 < len(self.segments) else None
        if following is not None and following["how"] == "resize":
            return
        if following is not None:
            self.save(trainer)
        trainer.group.close()
        if following is not None and trainer.group.is_master:
            for rank in following["ranks"]:
                WORLD.isend(json.dumps(None), rank, READY)
        self.trainer = None


def orders() -> Iterator[dict[str, Any]]:
    """Give each request, to every rank."""
    if WORLD.rank:
        while (request := wait(0, ORDER)) is not None:
            yield request
        return
    for line in iter(sys.stdin.readline, "null\n"):
        for rank in range(1, WORLD.size):
            WORLD.send(line, rank, ORDER)
        yield json.loads(line)
    for rank in range(1, WORLD.size):
        WORLD.send("null", rank, ORDER)


def main() -> None:
    torch.set_num_threads(1)
    tag = 10
    for request in orders():
        try:
            with broken(request["broken"]):
                History(request, tag).run()
        except BaseException:
            Path(f"{request['reply']}.error.{WORLD.rank}").write_text(traceback.format_exc())
            WORLD.Abort(1)
        tag += 4 * len(request["segments"]) + 4
        if WORLD.rank:
            WORLD.send(json.dumps(None), 0, FINISHED)
        else:
            for rank in range(1, WORLD.size):
                wait(rank, FINISHED)
            print("done", flush=True)


if __name__ == "__main__":
    main()
