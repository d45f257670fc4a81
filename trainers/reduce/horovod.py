"""Sums over Horovod: each member adds up its own virtual workers' gradients, and Horovod adds what the members have.

Means over all virtual workers come out right whatever each member holds, as gradients are scaled by 1/N before. The
order of the additions is Horovod's and MPI's, so results agree with plain DDP within rounding, and not bit for bit.

Each group has a Horovod of its own, started over a communicator of its members and ended when the group parts.
Horovod's way to let groups come and go in one start, dynamic process sets, is not used: its background threads then
meet all other ranks' threads in a blocking Allgather, once a millisecond, with a lock held that every reduction takes
(horovod/common/process_set.cc, 0.28.1). So a rank that stands still would stop every network of the run, in waits that
nothing bounds. With a Horovod for each group it stops only its own group, whose members say so.

Importing this module imports no Horovod.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.device.device_streams import LONGEST_BACKOFF, backoff
from trainers.messages.group import Group
from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent
from trainers.reduce.ordered_reduce import OrderedReduce, Reducer

if TYPE_CHECKING:
    from trainers.messages.mpi import MpiTransport

_END_SECONDS = 30.0
"""How long Horovod may take to end; its threads need a few milliseconds."""
_REASON_SECONDS = 5.0
"""How long a member that gave up may take to tell its peers why, once its Horovod has ended."""
_SECONDS_BETWEEN_CHECKS = 0.1
_FIXED_FOR_GOOD = ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_AUTOTUNE")
"""Variables that are taken from Horovod: what they fix outlives its end, and together with HOROVOD_CYCLE_TIME makes the
next start crash (horovod/common/parameter_manager.cc). Buckets are fused gradients already."""
_KNOWN = (torch.float16, torch.float32, torch.float64)
"""What Horovod can add; other dtypes are added as float32."""


class HorovodHangs(RuntimeError):
    """Horovod does not start or end, as another member of the group stands still; this process can start no other."""


def horovod_reduce(group: Group, virtual_workers: int, device: torch.device) -> Reducer:
    """Return what adds for a group, as `Trainer(reducer=...)`; a trainer that is alone needs no Horovod."""
    return OrderedReduce(group, virtual_workers, device) if group.size == 1 else HorovodReduce(group, device)


@dataclass(frozen=True)
class _Sum:
    """One that is under way. total: where it belongs; staged: what Horovod adds up, perhaps the same tensor."""

    handle: int
    total: Tensor
    staged: Tensor


class HorovodReduce:
    """One member's part in its group's sums.

    group: formed over MPI, once `start` is called.
    device: the member's. Sums are taken there if Horovod was built with NCCL or RCCL, else on the host.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        self._group, self._device = group, device
        self.place = torch.device("cpu")
        self._hvd: Any = None
        self._on_device = False
        self._timeout = 0.0
        self._under_way: list[_Sum] = []
        self._waited = 0.0
        self._interrupted = Event()

    def prepare(self) -> None:
        """Begin nothing: Horovod's own start knows no bound."""

    @property
    def is_connecting(self) -> bool:
        return False

    def start(self, at_once: bool = False) -> None:
        """Start Horovod over the group's communicator; all members call it at once, and wait for it.

        ImportError if it is not installed, or was built for another torch or MPI; PeerFailed, PeerSilent, HorovodHangs.
        """
        from trainers.messages.mpi import MpiTransport  # starts MPI

        transport = self._group.transport
        if not isinstance(transport, MpiTransport):
            raise TypeError("Horovod adds in groups that MPI joins; form this one with Group.form")
        hvd = _library()
        if hvd.is_initialized():
            raise RuntimeError("Horovod is at work in this process for another group; end that one's sums first")
        self._group.barrier()  # who fails before has told so; Horovod's own start knows no bound
        self._timeout = transport.timeout
        self._on_device = self._device.type != "cpu" and bool(hvd.nccl_built())
        for name in _FIXED_FOR_GOOD:
            os.environ.pop(name, None)
        self._within(self._timeout, "start", lambda: _init(hvd, transport))
        self._hvd = hvd

    @torch.no_grad()
    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Begin the sum over all virtual workers; it is in the first vector once `complete` has returned."""
        if self._hvd is None:
            raise RuntimeError("Horovod is not started; take steps inside Trainer.reducing()")
        total = vectors[0]
        for vector in vectors[1:]:
            total.add_(vector)
        staged = self._stage(total)
        name = f"bucket {len(self._under_way)}"
        try:
            handle = self._hvd.allreduce_async_(staged, name=name, op=self._hvd.Sum)
        except (RuntimeError, ValueError) as error:
            raise self._reason(error) from error
        self._under_way.append(_Sum(handle, total, staged))
        return total

    def share(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of the master's tensors."""
        return self._group.bcast_copies(tensors)

    def share_ahead(self, tensors: Sequence[Tensor]) -> None:
        """Begin nothing: Horovod adds, and copies nothing."""

    def follow(self) -> bool:
        """Tell that the host waits for Horovod."""
        return False

    def complete(self) -> None:
        """Return once all sums that were begun are there."""
        begin = time.perf_counter()
        for under_way in self._under_way:
            self._await(under_way.handle)
            if under_way.staged is not under_way.total:
                under_way.total.copy_(under_way.staged)
        self._under_way.clear()
        self._waited += time.perf_counter() - begin

    def take_waited(self) -> float:
        """Return the seconds spent in `complete` since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited

    def interrupt(self) -> None:
        """End the waits of other threads, now and from now on."""
        self._interrupted.set()
        self._group.interrupt()

    def stop(self, together: bool) -> None:
        """End Horovod; sums that are under way on other members end with PeerFailed. HorovodHangs."""
        hvd, self._hvd = self._hvd, None
        if hvd is not None:
            self._within(_END_SECONDS, "end", hvd.shutdown)
            self._under_way.clear()

    def _stage(self, total: Tensor) -> Tensor:
        """Return what Horovod can add up: where and of which dtype."""
        dtype = total.dtype if total.dtype in _KNOWN else torch.float32
        return total.to(self._device if self._on_device else "cpu", dtype, non_blocking=self._on_device)

    def _await(self, handle: int) -> None:
        begin = checked = time.perf_counter()
        while not self._hvd.poll(handle):
            now = time.perf_counter()
            if self._interrupted.is_set():
                raise Interrupted("this member gives up")
            if now - checked > _SECONDS_BETWEEN_CHECKS:
                self._group.check()
                checked = now
            if now - begin > self._timeout:
                raise PeerSilent(self._others, self._timeout)
            backoff(now - begin)
        try:
            self._hvd.synchronize(handle)
        except RuntimeError as error:
            raise self._reason(error) from error

    def _reason(self, error: Exception) -> Exception:
        """Return what an error of Horovod's means: it ends for all as soon as it ends for one, who then says why."""
        end = time.perf_counter() + _REASON_SECONDS
        while time.perf_counter() < end:
            if self._interrupted.is_set():
                return Interrupted("this member gives up")
            try:
                self._group.check()
            except PeerFailed as told:
                return told
            time.sleep(LONGEST_BACKOFF)
        return RuntimeError(f"Horovod: {error}")

    def _within(self, seconds: float, what: str, work: Callable[[], object]) -> None:
        """Do what waits for all members without a bound of its own. HorovodHangs after so many seconds."""
        errors: list[BaseException] = []
        thread = Thread(target=_caught, args=(work, errors), name="horovod", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            ranks = ", ".join(map(str, self._others))
            raise HorovodHangs(
                f"Horovod did not {what} within {seconds:g} s: it waits for ranks {ranks}, and one stands still or is "
                "gone; this process cannot train in a group any more, so end the job and start it again"
            )
        if errors:
            raise errors[0]

    @property
    def _others(self) -> list[int]:
        """The ranks of the members that this one waits for; Horovod does not say which of them is late."""
        return [rank for place, rank in enumerate(self._group.ranks) if place != self._group.index]


def _library() -> Any:
    import horovod.torch

    return horovod.torch


def _init(hvd: Any, transport: MpiTransport) -> None:
    members = transport.communicator()
    hvd.init(comm=members)
    members.Free()  # Horovod has a duplicate of its own


def _caught(work: Callable[[], object], errors: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        errors.append(error)
