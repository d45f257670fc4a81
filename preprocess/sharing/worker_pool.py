"""The preprocessors of a service: processes that it forks, orders, hears, and replaces when they die."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from preprocess.making.costs import open_stores
from preprocess.making.dataset import Dataset
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.ring import Ring
from preprocess.ring.shared_memory import use_one_thread
from preprocess.samples.errors import CorruptLimitError, SampleError
from preprocess.samples.order import HELD_OUT, TRAIN, epoch_order
from preprocess.samples.stream import LaneSpec
from preprocess.sharing.messages import (
    Channel,
    ChannelClosed,
    FillLane,
    LaneFailed,
    LoaderMessage,
    Skipped,
    StopFilling,
)
from preprocess.store.sample_store import StoreBudget

#: Longest sleep between two looks at the channel; orders also ring the bell.
_SLEEP_SECONDS = 1.0


class Worker:
    """Preprocessor `index` of a service.

    Args:
        ring: the service's ring.
        index: this preprocessor's number.
        dataset: makes the samples.
        channel: to the service.
        budget: the room for prepared samples; None: none are.
    """

    def __init__(
        self, ring: Ring, index: int, dataset: Dataset, channel: Channel, budget: StoreBudget | None = None
    ) -> None:
        self._channel = channel
        datasets = {dataset.name: dataset}
        stores = {} if budget is None else open_stores(datasets, budget, ring.shape, index, self._say)
        self._preprocessor = Preprocessor(ring, index, datasets, stores=stores)
        self._lanes: dict[int, LaneSpec] = {}
        dataset.report_skips(lambda sample: channel.send(Skipped(sample)))

    def run(self) -> None:
        """Make samples until the service closes the channel."""
        use_one_thread()
        epoch_order(1, 0, 0)  # imports torch, before a lane waits for it
        while True:
            try:
                self._obey()
            except ChannelClosed:
                return
            self._close_deserted()
            if not self._step():
                self._preprocessor.wait(_SLEEP_SECONDS)

    @staticmethod
    def _say(text: str) -> None:
        """Write to the service's log."""
        print(text, file=sys.stderr, flush=True)

    def _obey(self) -> None:
        while (message := self._channel.receive(0.0)[0]) is not None:
            if isinstance(message, FillLane):
                self._lanes[message.lane.lane] = message.lane
                self._preprocessor.open_lane(message.lane)
            elif isinstance(message, StopFilling):
                self._close(message.lane)

    def _step(self) -> bool:
        try:
            return self._preprocessor.step()
        except (SampleError, CorruptLimitError) as error:
            self._give_up(error)
            return True

    def _give_up(self, error: SampleError | CorruptLimitError) -> None:
        """Fill no more lanes that carry the sample, or none at all if there were too many, and say why."""
        for spec in list(self._lanes.values()):
            kind = HELD_OUT if spec.schedule.first_place == spec.schedule.places else TRAIN
            if isinstance(error, CorruptLimitError) or (kind, spec.stream.epoch) == (error.kind, error.epoch):
                self._channel.send(LaneFailed(spec.lane, spec.generation, str(error)))
                self._close(spec.lane)

    def _close_deserted(self) -> None:
        for lane in list(self._lanes):
            if self._preprocessor.is_deserted(lane):
                self._close(lane)

    def _close(self, lane: int) -> None:
        if self._lanes.pop(lane, None) is not None:
            self._preprocessor.close_lane(lane)


#: Deaths in a row, without a sample order in between, after which the service gives up.
_MOST_DEATHS = 5

#: In which a preprocessor ends that makes a sample when it is told to stop.
_DISMISSAL_SECONDS = 5.0


class WorkersLost(RuntimeError):
    """The preprocessors die again and again."""


@dataclass(frozen=True)
class _RunningWorker:
    pid: int
    channel: Channel


class WorkerPool:
    """Keeps as many preprocessors at work as the ring has writers.

    Args:
        ring: they fill it.
        dataset: opened before they are forked, so that what it holds in memory is there once.
        close_others: closes, in a new preprocessor, what only the service may hold.
        budget: the room for prepared samples of each; None: nothing is kept.
    """

    def __init__(
        self, ring: Ring, dataset: Dataset, close_others: Callable[[], None], budget: StoreBudget | None = None
    ) -> None:
        self._ring, self._dataset, self._close_others, self._budget = ring, dataset, close_others, budget
        self._running: dict[int, _RunningWorker] = {}
        self._deaths = 0

    def start(self) -> None:
        """Start every preprocessor that is not there."""
        for index in range(self._ring.shape.writers):
            if index not in self._running:
                self._running[index] = self._fork(index)

    def order(self, message: LoaderMessage) -> None:
        """Tell all preprocessors something, and wake them."""
        for index, worker in self._running.items():
            try:
                worker.channel.send(message)
            except ChannelClosed:
                continue  # it is dead, and will be replaced
            self._ring.control.bells.ring(index)

    def hear(self) -> list[LaneFailed | Skipped]:
        """Return what the preprocessors have said."""
        said: list[LaneFailed | Skipped] = []
        for worker in self._running.values():
            try:
                while (message := worker.channel.receive(0.0)[0]) is not None:
                    if isinstance(message, (LaneFailed, Skipped)):
                        said.append(message)
            except ChannelClosed:
                continue
        return said

    def replace_the_dead(self) -> bool:
        """Start new preprocessors for those that died, and say whether there were any; they know of no lane.

        Raises:
            WorkersLost: they die again and again.
        """
        dead = [index for index, worker in self._running.items() if _has_ended(worker.pid)]
        for index in dead:
            self._running.pop(index).channel.close()
            self._deaths += 1
        if self._deaths > _MOST_DEATHS:
            raise WorkersLost(
                f"preprocessors of the service died {self._deaths} times; what they printed is in its log"
            )
        self.start()
        return bool(dead)

    def stop(self) -> None:
        """End all preprocessors; one that does not end by itself is killed."""
        for index, worker in self._running.items():
            worker.channel.close()
            self._ring.control.bells.ring(index)
        deadline = time.monotonic() + _DISMISSAL_SECONDS
        for worker in self._running.values():
            _await_end(worker.pid, max(deadline - time.monotonic(), 0.0))
        self._running.clear()

    def _fork(self, index: int) -> _RunningWorker:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._work(index, Channel(theirs))
        theirs.close()
        return _RunningWorker(pid, Channel(ours))

    def _work(self, index: int, channel: Channel) -> None:
        """Be a preprocessor; does not return."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for worker in self._running.values():
                worker.channel.close()
            self._close_others()
            Worker(self._ring, index, self._dataset, channel, self._budget).run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)


def _has_ended(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _await_end(pid: int, seconds: float) -> None:
    """Wait until a child has ended, and kill it if it has not after so many seconds."""
    child = psutil.Process(pid)
    try:
        child.wait(seconds)
    except psutil.TimeoutExpired:
        child.kill()
        child.wait()
