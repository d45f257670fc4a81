"""One of several processes, each with its device, that send to each other."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch_rig
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from tests.device.programs.refusals import refusal

SECONDS = 60


def _begin(
    rank: int, size: int, folder: str, schedule: str, seconds: float = SECONDS, device: int | None = None
) -> Any:
    torch_rig.schedule(schedule)
    torch.accelerator.set_device_index(rank if device is None else device)
    dist.init_process_group(
        "cpu:gloo,rig:rigccl", init_method=f"file://{folder}/store", rank=rank, world_size=size,
        timeout=timedelta(seconds=seconds),
    )  # fmt: skip
    return torch.device("rig", torch.accelerator.current_device_index())


def _is(tensor: Tensor, value: float) -> bool:
    return bool((tensor.cpu() == value).all())


def collectives(rank: int, size: int, folder: str, schedule: str) -> dict[str, bool]:
    """Return which of them gave what they should; nobody waits but the device."""
    device, right = _begin(rank, size, folder, schedule), {}
    total = size * (size + 1) / 2

    def own(value: float = rank + 1) -> Tensor:
        return torch.full((1000,), float(value), device=device) * 1

    summed, sent, late = own(), own(), own()
    dist.all_reduce(summed)
    dist.broadcast(sent, 1)
    right["all_reduce, broadcast"] = _is(summed, total) and _is(sent, 2)
    work = dist.all_reduce(late, async_op=True)
    right["asynchronous"] = schedule == "prompt" or schedule == "main-late" or not work.is_completed()
    work.wait()
    right["waited for"] = _is(late + 0, total)
    parts = [torch.empty(1000, device=device) for _ in range(size)]
    dist.all_gather(parts, own())
    whole = torch.empty(1000 * size, device=device)
    dist.all_gather_into_tensor(whole, own())
    right["all_gather"] = all(_is(part, other + 1) for other, part in enumerate(parts)) and _is(whole[-1], size)
    mean = own()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    right["mean"] = _is(mean, total / size)
    piece, other = torch.empty(1000, device=device), torch.empty(1000, device=device)
    dist.reduce_scatter(piece, [own(float(member)) for member in range(size)])
    dist.reduce_scatter_tensor(other, torch.arange(size, device=device).repeat_interleave(1000).float())
    right["reduce_scatter"] = _is(piece, rank * size) and _is(other, rank * size)
    right["ring"] = _ring(rank, size, own(), device)
    dist.barrier()
    right["future"] = _is(dist.all_reduce(own(), async_op=True).get_future().wait()[0], total)
    dist.barrier()
    dist.destroy_process_group()
    return right


def aborted(rank: int, size: int, folder: str) -> str:
    """Wait for messages of a member that is there and sends none, and give up; say how the wait ends, if it does."""
    device = _begin(rank, size, folder, "prompt", seconds=3600)
    world: Any = dist.group.WORLD
    landing = [torch.empty(1000, device=device) for _ in range(2)]
    told = ""
    if rank == 0:
        for each in landing:
            dist.irecv(each, 1)
        world._get_backend(device).abort()
        try:
            torch.accelerator.synchronize()
        except RuntimeError as error:
            told = str(error).splitlines()[0]
    dist.barrier(dist.new_group(backend="gloo"))
    return told


def _ring(rank: int, size: int, mine: Tensor, device: torch.device) -> bool:
    """Send to the next and receive from the one before, begun together."""
    landing = torch.empty(1000, device=device)
    before, after = (rank - 1) % size, (rank + 1) % size
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, landing, before)]):
        work.wait()
    return _is(landing, before + 1)


def pair(rank: int, size: int, folder: str, schedule: str) -> bool:
    """A message without a group: one sends, the other receives."""
    device = _begin(rank, size, folder, schedule)
    tensor = torch.full((10,), float(rank), device=device)
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
    right = _is(tensor, 0)
    dist.barrier()
    return right


def crossed(rank: int, size: int, folder: str) -> str:
    """Both send first, and receive then."""
    device = _begin(rank, size, folder, "prompt", 2)
    tensor, other = torch.ones(10, device=device), torch.ones(10, device=device)
    return refusal(lambda: (dist.send(tensor, 1 - rank), dist.recv(other, 1 - rank), other.cpu()))


def two_orders(rank: int, size: int, folder: str) -> str:
    """Two communicators that the members begin in one order, and use in another."""
    device = _begin(rank, size, folder, "prompt", 2)
    groups = [dist.new_group([0, 1], timedelta(seconds=2)) for _ in range(2)]
    tensors = [torch.ones(10, device=device) for _ in groups]
    for tensor, group in zip(tensors, groups):
        dist.all_reduce(tensor, group=group)
        tensor.cpu()
    order = (0, 1) if rank else (1, 0)
    for work in [dist.all_reduce(tensors[number], group=groups[number], async_op=True) for number in order]:
        work.wait()
    return refusal(lambda: [tensor.cpu() for tensor in tensors])


def not_waited_for(rank: int, size: int, folder: str) -> bool:
    """Whether a result that nobody waited for is right."""
    device = _begin(rank, size, folder, "side-late")
    tensor = torch.ones(1000, device=device) * 1
    work = dist.all_reduce(tensor, async_op=True)
    right = _is(tensor, size)
    work.wait()
    dist.barrier()
    return right


def on_one_device(rank: int, size: int, folder: str) -> str:
    device = _begin(rank, size, folder, "prompt", device=2)
    return refusal(lambda: dist.all_reduce(torch.ones(3, device=device)))


def of_the_host(rank: int, size: int, folder: str) -> str:
    """Host tensors in a communicator that has no other way for them."""
    _begin(rank, size, folder, "prompt")
    inner: Any = dist.group.WORLD
    backend = inner._get_backend(torch.device("rig"))
    refused = refusal(lambda: backend.allreduce([torch.ones(3)], dist.AllreduceOptions()))
    dist.all_reduce(torch.ones(1))  # nobody leaves before all have come
    return refused


class _Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Linear(8 * 36, 5)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(pictures))).flatten(1))


def ddp(rank: int, size: int, folder: str, kind: str, schedule: str) -> str:
    """Train with stock DDP; return a digest of the bits of parameters and buffers."""
    device = _begin(rank, size, folder, schedule)
    if kind == "cpu":
        device = torch.device("cpu")
    torch.manual_seed(1)
    network = DistributedDataParallel(_Network().to(device), bucket_cap_mb=0.01)
    rule = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    for step in range(4):
        generator = torch.Generator().manual_seed(10 * step + rank)
        pictures, labels = torch.randn(6, 1, 8, 8, generator=generator), torch.randint(5, (6,), generator=generator)
        rule.zero_grad()
        cross_entropy(network(pictures.to(device)), labels.to(device)).backward()
        rule.step()
    digest = hashlib.sha256()
    for tensor in network.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    dist.barrier()
    dist.destroy_process_group()
    return digest.hexdigest()
