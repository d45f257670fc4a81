"""Moves a job between two steps from the trainers that it has to others, in the same processes and without a file.

What virtual workers share (parameters, optimizer, schedule, bucket layout, history) is equal on all old trainers. So
those who stay keep their objects, and each newcomer gets them from an old trainer: the newcomers stand in chains, one
behind each old trainer, and pass pieces on while the next arrive. A virtual worker's context (random states, buffers,
loss sum) goes from its old owner straight to its new one (EasyScale, SC'23, 3.2, moves both through a checkpoint).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trainers.job.trainer import Trainer
from trainers.messages.group import TIMEOUT_SECONDS, Group, blocks_of
from trainers.messages.transport import Alone, PeerFailed, Pending, Transport, exchange
from trainers.reduce.device_reduce import DeviceReducers
from trainers.state.checkpoint import Checkpoint
from trainers.state.tree import Staying, flatten, unflatten
from trainers.step.virtual_worker import VirtualWorker

if TYPE_CHECKING:
    from mpi4py import MPI

_GRACE_SECONDS = 2.0
"""How much longer all but the first wait, so that they hear from the first who did not come."""
_PIECE = 4 << 20
"""Bytes that a newcomer gathers before it passes them on."""

_NOT_JOINED = "this trainer has not joined its group yet; call trainers.resize first, as its peers do"

Context = dict[str, Any]


@dataclass(frozen=True)
class Move:
    """A job's way from some trainers to others; both are ranks of one communicator, each group's master first.

    old_shares, new_shares: how many virtual workers each has (see `trainers.messages.group.blocks_of`).
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    old_shares: tuple[int, ...] = ()
    new_shares: tuple[int, ...] = ()

    @property
    def newcomers(self) -> tuple[int, ...]:
        """Return the new trainers that were no old ones."""
        return tuple(rank for rank in self.new if rank not in self.old)

    @property
    def everyone(self) -> tuple[int, ...]:
        """Return all who take part: the old trainers, then the newcomers."""
        return (*self.old, *self.newcomers)

    @property
    def origin(self) -> int | None:
        """Return the first new trainer that was an old one; None if none was."""
        return next((rank for rank in self.new if rank in self.old), None)

    def neighbours(self, rank: int) -> tuple[int | None, int | None]:
        """Return from whom `rank` gets the shared state, and to whom it gives it on."""
        for place, head in enumerate(self.old):
            chain: list[int | None] = [None, head, *self.newcomers[place :: len(self.old)], None]
            if rank in chain:
                here = chain.index(rank)
                return chain[here - 1], chain[here + 1]
        raise ValueError(f"rank {rank} is none of {list(self.everyone)}")

    def owners(self, virtual_workers: int) -> list[tuple[int, int]]:
        """Return each virtual worker's old and new owner."""
        before, after = (
            [rank for rank, block in zip(ranks, blocks_of(virtual_workers, len(ranks), shares)) for _ in block]
            for ranks, shares in ((self.old, self.old_shares), (self.new, self.new_shares))
        )
        return list(zip(before, after))


def joining(ranks: Sequence[int], rank: int, shares: Sequence[int] = ()) -> Group:
    """Return the group of a trainer that will join a job at its next `resize`: its place among `ranks`, and no peers.

    With it a newcomer builds its `Trainer` while the old trainers still train.
    """
    ranks = tuple(ranks)
    if rank not in ranks:
        raise ValueError(f"rank {rank} cannot join a group of ranks {list(ranks)}: it is none of them")
    return Group(_Awaited(ranks.index(rank), len(ranks)), ranks, shares)


def resize(
    trainer: Trainer,
    comm: MPI.Intracomm,
    old: Sequence[int],
    new: Sequence[int],
    tag: int,
    timeout: float = TIMEOUT_SECONDS,
    *,
    old_shares: Sequence[int] = (),
    new_shares: Sequence[int] = (),
) -> bool:
    """Go on with the job on the ranks `new` of `comm` instead of `old`; return whether this rank is one of them.

    Every old and every new trainer calls it between two steps, with the same ranks, shares and tag; there may be any
    number of them, the same or others, or the same with other shares (see `blocks_of`). Newcomers give a trainer
    of the same task that they built with `joining`. The trainer's group becomes the new one. A trainer that
    leaves has a group of one from then on, and no workers.

    tag: fresh; `tag` to `tag + 3` are used on `comm` until this returns. timeout: seconds that any wait may take.

    PeerSilent names who did not come in time, PeerFailed who gave up and why, CheckpointError another job's trainer,
    PinsDiffer a newcomer under other settings. After any of them the job goes on from its last checkpoint: the old
    trainers are as they were, but their groups are of no use.
    """
    move = Move(tuple(old), tuple(new), tuple(old_shares), tuple(new_shares))
    owners = move.owners(trainer.virtual_workers)
    rank = comm.Get_rank()
    staying = Staying(trainer.device.type if _goes_between_devices(move, trainer) else "")
    with _meeting(comm, move, tag, timeout) as meeting:
        trainer.settle()
        contexts = _hand_over(meeting, move, rank, trainer, owners)
        shared = _share(meeting, move, rank, trainer, staying)
        _meet(meeting)
    if rank in move.old:
        trainer.group.close()
    if rank not in move.new:
        trainer.workers = []
        trainer.group.become(Group.alone())
        return False
    trainer.group.become(Group.form(comm, move.new, tag + 2, timeout, move.new_shares))
    with _telling(trainer.group.transport):
        trainer.regroup(trainer.group, _workers(trainer, contexts))
        if staying and move.origin is not None:
            trainer.receive(list(staying.values()), move.new.index(move.origin))
        if shared is not None:
            trainer.load_state(shared)
    return True


@contextmanager
def coming(comm: MPI.Intracomm, old: Sequence[int], new: Sequence[int], tag: int) -> Iterator[None]:
    """Prepare inside for a `resize` of these arguments: where that raises, the others hear it, and do not wait."""
    from trainers.messages.mpi import MpiTransport  # starts MPI

    with _telling(MpiTransport(comm, Move(tuple(old), tuple(new)).everyone, tag=tag)):
        yield


class _Awaited(Alone):
    """The transport of a member whose group is still to form: a place in it, and nobody to talk to."""

    def __init__(self, index: int, size: int) -> None:
        self.index, self.size = index, size

    def send(self, peer: int, memory: np.ndarray) -> Pending:
        raise RuntimeError(_NOT_JOINED)

    def receive(self, peer: int, memory: np.ndarray) -> Pending:
        raise RuntimeError(_NOT_JOINED)


@contextmanager
def _meeting(comm: MPI.Intracomm, move: Move, tag: int, timeout: float) -> Iterator[Transport]:
    """Let all members talk, once they have come; a member that fails tells the others why."""
    from trainers.messages.mpi import MpiTransport  # starts MPI

    grace = 0.0 if comm.Get_rank() == move.everyone[0] else _GRACE_SECONDS
    transport = MpiTransport(comm, move.everyone, tag=tag, timeout=timeout + grace)
    with _telling(transport):
        _meet(transport)
        yield transport


@contextmanager
def _telling(transport: Transport) -> Iterator[None]:
    """Tell the other members what is raised inside, unless one of them has told it."""
    try:
        yield
    except PeerFailed:
        raise
    except BaseException as error:
        transport.abort(f"{type(error).__name__}: {error}")
        raise


def _meet(transport: Transport) -> None:
    """Return once everyone has come; the first hears them all, so that it can name who has not."""
    peers = range(1, transport.size)
    words = np.zeros(transport.size, dtype=np.uint8)
    if transport.index == 0:
        exchange(transport, [], [(peer, words[peer : peer + 1]) for peer in peers])
        exchange(transport, [(peer, words[:1]) for peer in peers], [])
    else:
        exchange(transport, [(0, words[:1])], [])
        exchange(transport, [], [(0, words[:1])])


def _hand_over(
    meeting: Transport, move: Move, rank: int, trainer: Trainer, owners: Sequence[tuple[int, int]]
) -> list[VirtualWorker | Context]:
    """Give contexts to their new owners; return, in rank order, this one's workers that stay and contexts that came."""
    held = {worker.rank: worker for worker in trainer.workers} if rank in move.old else {}
    giving: dict[int, list[Context]] = {}
    coming: list[int] = []
    for worker, (before, after) in enumerate(owners):
        if before == rank != after:
            giving.setdefault(after, []).append(held[worker].as_tree())
        elif after == rank != before:
            coming.append(before)
    place = {peer: index for index, peer in enumerate(move.everyone)}
    outgoing = {place[peer]: _packed(contexts) for peer, contexts in giving.items()}
    sources = [place[peer] for peer in dict.fromkeys(coming)]
    arrived = {context["rank"]: context for bundle in _swap(meeting, outgoing, sources) for context in bundle}
    return [
        held[worker] if before == rank else arrived[worker]
        for worker, (before, after) in enumerate(owners)
        if after == rank
    ]


PackedTree = tuple[bytes, list[np.ndarray]]
"""A text that says what the arrays and the staying tensors are, and the bytes of the arrays."""


def _packed(tree: Any, staying: Staying | None = None) -> PackedTree:
    structure, arrays = flatten(tree, staying)
    entries = [[path, array.dtype.str, array.shape] for path, array in arrays.items()]
    others = [[path, str(tensor.dtype), tensor.shape] for path, tensor in (staying or {}).items()]
    return json.dumps([structure, entries, others]).encode(), [_flat(array) for array in arrays.values()]


def _unpacked(header: bytes, own: dict[str, np.ndarray] | None = None) -> tuple[str, dict[str, np.ndarray]]:
    """Return a structure and memory for its arrays: memory of `own` where path, dtype and shape are the same."""
    structure, entries, _ = json.loads(header)
    arrays = {}
    for path, dtype, shape in entries:
        mine = (own or {}).get(path)
        fits = mine is not None and (mine.dtype.str, list(mine.shape)) == (dtype, shape)
        arrays[path] = mine if mine is not None and fits else np.empty(shape, dtype)
    return structure, arrays


def _make_room(staying: Staying, header: bytes, own: Mapping[str, Tensor], device: torch.device) -> None:
    """Fill `staying` with memory for the tensors that are to come to the device: that of `own`, as for arrays."""
    for path, dtype, shape in json.loads(header)[2]:
        mine, dtype = own.get(path), getattr(torch, dtype.removeprefix("torch."))
        fits = mine is not None and (mine.dtype, list(mine.shape)) == (dtype, shape)
        staying[path] = mine if mine is not None and fits else torch.empty(shape, dtype=dtype, device=device)


def _swap(meeting: Transport, outgoing: dict[int, PackedTree], sources: Sequence[int]) -> list[Any]:
    """Send trees to peers and return the trees of `sources`."""
    lengths = {peer: _length(header) for peer, (header, _) in outgoing.items()}
    incoming = {peer: _length(b"") for peer in sources}
    exchange(meeting, list(lengths.items()), list(incoming.items()))
    texts = {peer: np.empty(int(cell.view(np.int64)[0]), np.uint8) for peer, cell in incoming.items()}
    exchange(meeting, [(peer, _text(header)) for peer, (header, _) in outgoing.items()], list(texts.items()))
    trees = {peer: _unpacked(text.tobytes()) for peer, text in texts.items()}
    exchange(
        meeting,
        [(peer, piece) for peer, (_, pieces) in outgoing.items() for piece in pieces],
        [(peer, _flat(array)) for peer, (_, arrays) in trees.items() for array in arrays.values()],
    )
    return [unflatten(*tree) for tree in trees.values()]


def _goes_between_devices(move: Move, trainer: Trainer) -> bool:
    """Whether what lies on devices goes from one to the others: from an old trainer that stays, if any does."""
    return isinstance(trainer.reducer_of, DeviceReducers) and move.origin is not None and bool(move.newcomers)


def _share(meeting: Transport, move: Move, rank: int, trainer: Trainer, staying: Staying) -> Checkpoint | None:
    """Pass the shared state down the chains; return what a newcomer got, its parameters in place already.

    staying: gets the tensors of its kind of device: an old trainer's own, and those of a newcomer, which are to come.
    """
    place = {peer: index for index, peer in enumerate(move.everyone)}
    previous, following = (None if peer is None else place[peer] for peer in move.neighbours(rank))
    if previous is not None:
        return _shared(meeting, previous, following, trainer, staying)
    if following is not None or staying.kind:
        header, memory = _packed(trainer.state([]).as_tree(), staying)
    if following is not None:
        _pass(meeting, None, following, [_length(header)])
        _pass(meeting, None, following, [_text(header)])
        _pass(meeting, None, following, memory)
    return None


def _shared(meeting: Transport, previous: int, following: int | None, trainer: Trainer, staying: Staying) -> Checkpoint:
    """Return what a newcomer gets, and passes on."""
    length = _length(b"")
    _pass(meeting, previous, following, [length])
    text = np.empty(int(length.view(np.int64)[0]), np.uint8)
    _pass(meeting, previous, following, [text])
    here = Staying(staying.kind)
    own = flatten({"parameters": {n: p.detach() for n, p in trainer.model.named_parameters()}}, here)[1]
    structure, arrays = _unpacked(text.tobytes(), own)
    _make_room(staying, text.tobytes(), here, trainer.device)
    shared = Checkpoint.from_tree(unflatten(structure, {**arrays, **staying}))
    trainer.check_fit(shared)
    _pass(meeting, previous, following, [_flat(array) for array in arrays.values()])
    return shared


def _pass(meeting: Transport, previous: int | None, following: int | None, memory: Sequence[np.ndarray]) -> None:
    """Fill `memory` from the previous member of the chain, and pass on to the following one what has come."""
    if previous is None or following is None:
        parcels = [(_not_none(previous, following), part) for part in memory]
        exchange(meeting, [] if following is None else parcels, [] if previous is None else parcels)
        return
    pieces = list(_pieces(memory))
    for before, piece in zip([[], *pieces], [*pieces, []]):
        exchange(meeting, [(following, part) for part in before], [(previous, part) for part in piece])


def _pieces(memory: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Cut memory into pieces of about `_PIECE` bytes: parts of large arrays, or several small ones."""
    piece: list[np.ndarray] = []
    size = 0
    for array in memory:
        for start in range(0, array.size, _PIECE):
            part = array[start : start + _PIECE]
            piece.append(part)
            size += part.size
            if size >= _PIECE:
                yield piece
                piece, size = [], 0
    yield piece


def _workers(trainer: Trainer, contexts: Sequence[VirtualWorker | Context]) -> list[VirtualWorker]:
    workers = []
    for context in contexts:
        if isinstance(context, VirtualWorker):
            workers.append(context)
        else:
            worker = VirtualWorker(context["rank"], trainer.seed, trainer.model, trainer.device)
            worker.restore(context)
            workers.append(worker)
    return workers


def _not_none(*peers: int | None) -> int:
    return next(peer for peer in peers if peer is not None)


def _flat(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _text(header: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(header), dtype=np.uint8)


def _length(header: bytes) -> np.ndarray:
    return np.array([len(header)], dtype=np.int64).view(np.uint8)
