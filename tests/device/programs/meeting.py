"""One of several processes whose groups form, part and form again, with their devices' communicators."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
import torch_rig
from torch import Tensor

from tests.device.programs.mutants import changed
from trainers import Group
from trainers.messages.group import blocks_of
from trainers.messages.torch_backend import TorchTransport
from trainers.messages.transport import PeerFailed, PeerSilent
from trainers.reduce.device_reduce import Communicators, DeviceReduce
from trainers.reduce.ordered_reduce import OrderedReduce

SECONDS, WORKERS, ELEMENTS = 10, 3, 3000


def groups(
    rank: int, size: int, folder: str, turns: list[str], most: int, mutant: list[str] | None = None
) -> list[str | bool]:
    """Add in one group after another; return, for each that this member is in, the communicator, or what went wrong.

    turns: the members of each group, such as "01"; with a word behind them, the last one gives up: "raising" in the
    middle of the sums, "leaving" after them, "failing" while all meet; "lost": it is known to be lost after them;
    "sharing": the first one gives up before it shares its tensors.
    """
    _begin(rank, size, folder)
    if mutant:
        changed(*mutant)
    known_lost: list[int] = []
    kept = Communicators(lambda: known_lost, most)
    told: list[str | bool] = []
    for members, _, word in (turn.partition(" ") for turn in turns):
        ranks = [int(member) for member in members]
        inside = dist.new_group(ranks, timedelta(seconds=SECONDS))
        if rank in ranks and rank not in known_lost:
            gives_up = word if rank == ranks[-1] or word == "sharing" else ""
            told.append(_take_part(Group(TorchTransport(inside, timeout=SECONDS), ranks), kept, gives_up))
        known_lost += [ranks[-1]] if word == "lost" else []
    assert len(kept._kept) <= most
    assert rank in known_lost or not any(set(known_lost) & set(ranks) for ranks in kept._kept)
    dist.barrier()
    kept.end()
    return told


def _begin(rank: int, size: int, folder: str) -> None:
    torch_rig.schedule("both-late")
    torch.accelerator.set_device_index(rank)
    dist.init_process_group("cpu:gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)


def _take_part(group: Group, kept: Communicators, gives_up: str) -> str | bool:
    device = torch.device("rig", group.ranks[group.index])
    reducer, together, name = DeviceReduce(group, WORKERS, device, kept), False, ""
    try:
        if gives_up == "failing":
            kept._agreed(group, "")
            raise ArithmeticError("no room")
        reducer.start()
        assert reducer._channel is not None
        name = reducer._channel.name
        if gives_up == "sharing":
            return _unshared(reducer, group, device)
        made = [_drawn(10 * bucket) for bucket in range(3)]
        block = blocks_of(WORKERS, group.size)[group.index]
        own = [[vectors[worker].to(device) * 1.0 for worker in block] for vectors in made]
        sums = [reducer.sum(vectors) for vectors in own[: 1 if gives_up == "raising" else 3]]
        if gives_up == "raising":
            raise ArithmeticError("the loss is nan")
        reducer.complete()
        if not all(torch.equal(got.cpu(), _in_order(vectors)) for got, vectors in zip(sums, made)):
            return False
        together = gives_up != "leaving"
    except ArithmeticError as error:
        name = str(error)
    except (PeerFailed, PeerSilent) as error:
        return f"{type(error).__name__}: {getattr(error, 'text', '')}"
    finally:
        reducer.stop(together)
        assert not together or not kept._given_up, "what was given up is held although nobody waits"
        if name and " " in name:
            group.abort(name)
    return name


def _unshared(reducer: DeviceReduce, group: Group, device: torch.device) -> str:
    if group.is_master:
        raise ArithmeticError("no buffers")
    return str(reducer.share([torch.ones(3, device=device)])[0].cpu())


def _drawn(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(ELEMENTS, generator=generator) * 10.0 ** (worker % 5) for worker in range(WORKERS)]


def _in_order(vectors: list[Tensor]) -> Tensor:
    return OrderedReduce(Group.alone(), len(vectors), torch.device("cpu")).sum([vector.clone() for vector in vectors])
