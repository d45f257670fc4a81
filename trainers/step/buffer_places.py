"""Where a model's buffers are: to walk through all its modules takes as long as small networks need for a layer."""

from __future__ import annotations

from torch import Tensor, nn


class BufferPlaces:
    """The places of a model's buffers, in the order of `model.buffers()`; modules may put other tensors there.

    names: of the buffers, in full.
    """

    def __init__(self, model: nn.Module) -> None:
        self.names = [name for name, _ in model.named_buffers()]
        homes = (name.rpartition(".") for name in self.names)
        self._places = [(model.get_submodule(path)._buffers, name) for path, _, name in homes]

    def now(self) -> list[Tensor]:
        """Return the tensors that are there."""
        return [buffer for home, name in self._places if (buffer := home.get(name)) is not None]
