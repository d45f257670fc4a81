"""Ranks that predict together: batches go round, and rank 0 joins the answers in the order of the samples.

A batch holds the same samples whatever the number of ranks, and one rank computes all of it; so the answers have the
same bits on any number of ranks with processors, or devices, of one kind.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fleet.coordination.failures import abort
from fleet.machine.devices import NoSuchDevice, device_of
from fleet.machine.launch.launched import DONE, FAILED, launch_folder, tell_up
from fleet.machine.launch.leftovers import made_by_mpi, write_note
from fleet.machine.standard_streams import tell
from fleet.models.load import Ensemble
from fleet.models.predict import MENDABLE, AskedPrediction, T, told_of
from fleet.models.predictions import BATCH, Predictions, joined_answers, predict_batch
from fleet.models.validation_data import HeldOut
from fleet.workers.agreement import BadInput, agree, exit_code
from fleet.workers.rank import time_limit
from trainers.device.device_streams import select

if TYPE_CHECKING:
    from mpi4py import MPI


PATIENCE = 600.0
"""Seconds that ranks wait for each other: while they read the run, and for each batch."""
_POLL = 0.002
_ANSWERS, _TARGETS = 1, 2
_NONE, _DONE, _FAILED = range(3)
_FOUND: tuple[type[Exception], ...] = (*MENDABLE, BadInput, NoSuchDevice)


class RankTeam:
    """The ranks of `world`; see `Team`."""

    def __init__(self, world: MPI.Intracomm, patience: float = PATIENCE) -> None:
        self._world, self._patience = world, patience
        self._hosts = np.zeros(world.size, dtype="S64")
        with self._limit("come to the beginning"):
            world.Allgather(np.array([socket.gethostname()], dtype="S64").view(np.uint8), self._hosts.view(np.uint8))
        self._place_on_node = int((self._hosts[: world.rank] == self._hosts[world.rank]).sum())

    def agreed(self, find: Callable[[], T]) -> T:
        def found() -> T:
            try:
                return find()
            except _FOUND as error:
                raise BadInput(str(error)) from error

        with self._limit("heard which networks predict"):
            return agree(self._world, found, lambda value: value)

    @contextmanager
    def mending(self) -> Iterator[None]:
        text = ""
        try:
            yield
        except _FOUND as error:
            text = str(error)
        with self._limit("read the run"):
            failed = np.zeros(self._world.size, dtype=np.int64)
            self._world.Allgather(np.array([bool(text)], dtype=np.int64), failed)
            self._end_if_failed(failed, text)

    def device(self, asked: str) -> str:
        if asked == "cpu" or ":" in asked:
            return asked
        device = device_of(asked, self._place_on_node)
        select(torch.device(device))  # a device that is not the thread's would take memory on the first one, too
        return device

    def predictions(self, ensemble: Ensemble, samples: HeldOut, device: str) -> Predictions | None:
        batches, size = samples.count_batches(BATCH), self._world.size
        found: list[Predictions] = []
        for begin in range(0, batches, size):
            own, text = None, ""
            if begin + self._world.rank < batches:
                try:
                    own = predict_batch(ensemble, *samples.batch(begin + self._world.rank, BATCH), device)
                except _FOUND as error:
                    text = str(error)
            found += self._joined_round(own, text)
        return joined_answers(found) if self._world.rank == 0 else None

    def _joined_round(self, own: Predictions | None, text: str) -> list[Predictions]:
        """Return the ranks' answers to a batch each, on rank 0; nothing on others."""
        state = _FAILED if text else _NONE if own is None else _DONE
        shape = (0, 0, 0) if own is None else own.probabilities.shape
        heads = self._heads(np.array([state, 0 if own is None else own.samples, *shape], dtype=np.int64))
        self._end_if_failed(heads[:, 0] == _FAILED, text)
        with self._limit("handed its answers over"):
            if self._world.rank == 0:
                others = (self._received(rank, head) for rank, head in enumerate(heads) if rank and head[0] == _DONE)
                return [] if own is None else [own, *(Predictions(own.names, *each) for each in others)]
            if own is not None:
                self._world.Send(own.probabilities.numpy(), 0, _ANSWERS)
                self._world.Send(own.targets.numpy(), 0, _TARGETS)
        return []

    def _received(self, rank: int, head: np.ndarray[Any, Any]) -> tuple[torch.Tensor, torch.Tensor, int]:
        """A rank's answers to a batch, and its targets."""
        _, samples, networks, answers, classes = head.tolist()
        probabilities, targets = torch.empty(networks, answers, classes), torch.empty(answers, dtype=torch.int64)
        self._world.Recv(probabilities.numpy(), rank, _ANSWERS)
        self._world.Recv(targets.numpy(), rank, _TARGETS)
        return probabilities, targets, samples

    def _heads(self, own: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What each rank has to say of its batch, (ranks, 5), on every rank; ends all if one says nothing in time."""
        heads = np.zeros((self._world.size, len(own)), dtype=np.int64)
        if self._world.rank == 0:
            self._hear(heads, own)
        else:
            self._await([self._world.Isend(own, 0)], lambda late: "rank 0 takes no word", 2)
        self._await([self._world.Ibcast(heads, 0)], lambda late: f"rank {self._world.rank} heard nothing of rank 0", 2)
        return heads

    def _hear(self, heads: np.ndarray[Any, Any], own: np.ndarray[Any, Any]) -> None:
        heads[0] = own
        requests = [self._world.Irecv(heads[rank], rank) for rank in range(1, self._world.size)]

        def waited(late: list[int]) -> str:
            named = ", ".join(f"rank {place + 1} on {self._hosts[place + 1].decode()}" for place in late[:4])
            return f"rank 0 waits for {named}{' ...' if len(late) > 4 else ''} to predict a batch of {BATCH} samples"

        self._await(requests, waited)

    def _await(self, requests: list[MPI.Request], what: Callable[[list[int]], str], times: int = 1) -> None:
        """Wait until all requests are done; end all ranks when that takes too long."""
        end = time.monotonic() + times * self._patience
        late = list(range(len(requests)))
        while late := [place for place in late if not requests[place].Test()]:
            if time.monotonic() > end:
                mend = "is its file system or its device stuck? Name fewer --members, or start more ranks"
                tell(f"{what(late)}, for {times * self._patience:g} s already; {mend}")
                abort(self._world, FAILED)
            time.sleep(_POLL)

    def _end_if_failed(self, failed: np.ndarray[Any, Any], text: str) -> None:
        """Raise BadInput on every rank with what the first of those met that failed, if any did."""
        ranks = np.flatnonzero(failed)
        if not len(ranks):
            return
        first = int(ranks[0])
        said = np.frombuffer(text.encode(), dtype=np.uint8).copy()
        length = np.array([said.size], dtype=np.int64)
        with self._limit("heard what went wrong"):
            self._world.Bcast(length, first)
            said = said if self._world.rank == first else np.empty(int(length[0]), dtype=np.uint8)
            self._world.Bcast(said, first)
        raise BadInput(said.tobytes().decode())

    def _limit(self, what: str) -> Any:
        late = f"rank {self._world.rank}: not every rank has {what} within {self._patience:g} s, one is stuck or slow"
        return time_limit(self._world, self._patience, late)


def predict_on_rank(
    directory: Path, asked: AskedPrediction, show: Callable[[dict[str, Any]], object], patience: float = PATIENCE
) -> int:
    """Take part; returns the exit code. An error that no person can mend ends all ranks, with its traceback.

    Args:
        show: is given the figures, on rank 0.
        patience: seconds that ranks wait for each other: to begin, to read the run, and for each batch.
    """
    from mpi4py import MPI

    note = write_note([*made_by_mpi(), *launch_folder()])
    late = f"rank {MPI.COMM_WORLD.rank}: not every rank has begun within {patience:g} s, one is stuck or slow"
    with time_limit(MPI.COMM_WORLD, patience, late):
        world = MPI.COMM_WORLD.Dup()
    tell_up(world.rank)

    def work() -> int:
        try:
            told = told_of(directory, asked, RankTeam(world, patience))
        except MENDABLE as error:
            raise BadInput(str(error)) from error
        if world.rank == 0:
            show(told)
        return DONE

    code = exit_code(world, work)
    note.remove()
    return code
