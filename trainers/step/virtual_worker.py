"""One logical data-parallel rank of a job: an EasyScaleThread (EasyScale, SC'23, 3.2).

Virtual workers take turns on a device. What differs between them is small: random states, buffers (BatchNorm's
statistics), plain attributes and gradients (`trainers.step.update`). Parameters and the optimizer's state are shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainers.device.device_streams import copy_all
from trainers.repeatable.plain_attributes import Attributes
from trainers.repeatable.random_state import RandomState, seed_everything


class VirtualWorker:
    """Virtual rank `rank` of a job.

    rank: 0 .. N-1, fixed for the job's life.
    buffers: own copies of the model's buffers, in the order of `model.buffers()`.
    is_at_home: whether these are the model's own, as nobody else takes turns there.
    attributes: own values of attributes that are not as the model was built (`trainers.repeatable.plain_attributes`).
    loss_sum, samples: loss times samples, and samples, since the epoch began; where a batch's mean was divided by
        something else than its samples, that is counted in their place.
    """

    def __init__(self, rank: int, seed: int, model: nn.Module, device: torch.device) -> None:
        """Seed the generators with seed + 1 + rank, as the processes of a DDP script do that keep their ranks apart."""
        self.rank = rank
        self.device = device
        # To walk through all modules takes as long as small networks need for a layer, so places are looked up once.
        self._names = [name for name, _ in model.named_buffers()]
        homes = (name.rpartition(".") for name in self._names)
        self._places = [(model.get_submodule(path)._buffers, name) for path, _, name in homes]
        self.buffers = [buffer.detach().clone() for buffer in self._in_model()]
        self.is_at_home = False
        self._homes: list[int] = []  # where the model's own lie, while `buffers` are views of them
        self.attributes: Attributes = {}
        self.loss_sum = 0.0
        self.samples: float = 0
        seed_everything(seed + 1 + rank)
        self.random = RandomState.now(device)

    def move_in(self) -> None:
        """Keep the own buffers in the model from now on: no other worker takes turns there."""
        if not self.is_at_home:
            self.fill()
            self.is_at_home = True
            self._follow()

    def _in_model(self) -> list[Tensor]:
        """Return the model's buffers, in the order of `model.buffers()`; modules may put other tensors there."""
        return [buffer for home, name in self._places if (buffer := home.get(name)) is not None]

    def _follow(self) -> None:
        """The own buffers are those in the model; a module may have put others there."""
        there = self._in_model()
        places = [*map(id, there), *map(Tensor.data_ptr, there)]
        if places != self._homes:
            self._homes, self.buffers = places, [buffer.detach() for buffer in there]

    def move_out(self) -> None:
        """Keep the own buffers apart from the model."""
        if self.is_at_home:
            self.buffers, self.is_at_home = [buffer.detach().clone() for buffer in self.buffers], False
            self._homes = []

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Let others change the model's buffers inside; the own ones are what they were afterwards."""
        home = self.is_at_home
        self.move_out()
        yield
        if home:
            self.move_in()

    def begin(self, buffers: Sequence[Tensor]) -> None:
        """Take over values for the own buffers."""
        if buffers is not self.buffers:
            copy_all(self.buffers, buffers)

    def __enter__(self) -> None:
        """Give the process's generators and the model's buffers to this worker; their new values are taken back."""
        self.random.set(self.device)
        if self.buffers and not self.is_at_home:
            self.fill()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        if self.buffers:
            self._follow() if self.is_at_home else copy_all(self.buffers, self._in_model())
        self.random.renew(self.device)

    def fill(self) -> None:
        """Copy this worker's buffers into the model, past their versions: a graph may hold them (`task.parts`)."""
        copy_all([buffer.data for buffer in self._in_model()], self.buffers)

    def take_losses(self) -> tuple[float, float]:
        """Return the epoch's sum of losses, and what it is to be divided by, and begin both anew."""
        losses = (self.loss_sum, float(self.samples))
        self.loss_sum, self.samples = 0.0, 0
        return losses

    def named_buffers(self) -> dict[str, Tensor]:
        """Return the own buffers by their names in the model."""
        return dict(zip(self._names, self.buffers))

    def open_loader(self) -> None:
        """Draw what `iter(DataLoader)` draws once an epoch from torch's global generator: its processes' base seed."""
        torch.empty((), dtype=torch.int64).random_()

    def count(self, loss: float, samples: float) -> float:
        """Add a batch's mean loss to the epoch's sum, by what it was divided by; return loss * samples."""
        self.loss_sum += loss * samples
        self.samples += samples
        return loss * samples

    def as_tree(self) -> dict[str, Any]:
        """Return the worker's context for a checkpoint: everything but gradients, which live for one step."""
        return {
            **({"attributes": dict(self.attributes)} if self.attributes else {}),
            "rank": self.rank,
            "buffers": {name: buffer.to("cpu", copy=True) for name, buffer in self.named_buffers().items()},
            "random": self.random.as_tree(),
            "loss_sum": self.loss_sum,
            "samples": self.samples,
        }

    def restore(self, tree: dict[str, Any]) -> None:
        """Take over the context that `as_tree` described."""
        for name, own in zip(self._names, self.buffers):
            own.copy_(tree["buffers"][name])
        self.random = RandomState.from_tree(tree["random"])
        self.attributes = dict(tree.get("attributes", {}))
        self.loss_sum, self.samples = tree["loss_sum"], tree["samples"]


def place_workers(workers: Sequence[VirtualWorker], keeps_turns: bool) -> None:
    """Let an only worker's buffers be the model's; several take turns there, as do those of a task with parts.

    keeps_turns: whether a worker's turn is a whole step.
    """
    alone = len(workers) == 1 and keeps_turns
    for worker in workers:
        worker.move_in() if alone else worker.move_out()
