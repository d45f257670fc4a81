"""Which whole numbers a made-up batch may hold: ids that are known in all tables where the model looks them up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainers.repeatable.process_settings import model_without_memory, no_exit
from trainers.task.parts import is_parted
from trainers.task.task import Batch, loss_of


def least_table(task: Any, batch: Batch) -> int | None:
    """Return how many rows the smallest table has in which a task's model looks up its input; None if none is found.

    The model runs on no data, as far as it can.

    Args:
        batch: one on torch's meta device.
    """
    seen = _LookUps(batch[0])
    try:
        with no_exit():
            model = model_without_memory(task.model)
            with torch.device("meta"), seen, torch.no_grad():
                list(task.step(model, batch)) if is_parted(task) else loss_of(task, model, batch)
    except (Exception, SystemExit):
        pass  # whatever it has looked up so far counts
    return min(seen.rows, default=None)


class _LookUps(TorchDispatchMode):
    """Notes the rows of tables that are indexed by what comes from `ids`; what is made in their shape alone is not."""

    def __init__(self, ids: Tensor) -> None:
        super().__init__()
        self._from_ids = [ids]
        self.rows: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        result = func(*args, **(kwargs or {}))
        if name in ("embedding", "_embedding_bag", "index_select", "index"):
            self.rows += self._rows(name, *args)
        elif not _takes_shapes(name) and any(map(self._comes_from_ids, tree_leaves((args, kwargs)))):
            self._from_ids += [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        return result

    def _rows(self, name: str, table: Tensor, *indices: Any) -> Iterator[int]:
        """The rows of a table, along each of its axes that ids index."""
        if name == "index_select":
            indexed = {indices[0]: indices[1]}
        else:
            indexed = dict(enumerate(indices[0] if name == "index" else indices[:1]))
        return (table.shape[axis] for axis, index in indexed.items() if self._comes_from_ids(index))

    def _comes_from_ids(self, value: Any) -> bool:
        return isinstance(value, Tensor) and any(value is each or _share(value, each) for each in self._from_ids)


def _takes_shapes(operator: str) -> bool:
    """Whether an operator takes its arguments' shapes alone."""
    return operator.endswith("_like") or operator.startswith("new_")


def _share(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata
