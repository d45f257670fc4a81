"""The stores of one preprocessor, one for each data set whose prepared samples are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from preprocess.making.dataset import Dataset
from preprocess.making.worth import bytes_of_prepared
from preprocess.ring.control import RingShape
from preprocess.samples.block_order import BlockOrder
from preprocess.store.sample_store import Keeping, SampleStore, StoreBudget

#: Samples of which memory is taken beyond what all take, as sizes are estimated.
_MARGIN = 1.05


def open_stores(
    datasets: Mapping[str, Dataset], budget: StoreBudget, shape: RingShape, number: int, tell: Callable[[str], None]
) -> dict[str, SampleStore]:
    """Return the stores of a preprocessor.

    Args:
        datasets: by name; their prepared samples are kept.
        budget: what the preprocessor may take for all of them; each gets as much as its samples need, or else its part
            by need.
        shape: the shape of the node's ring.
        number: the preprocessor's number.
        tell: called with a sentence where something can't be used.
    """
    needs = {name: _need(dataset, shape, number) for name, dataset in datasets.items()}
    return {
        name: _store(datasets[name], _part(budget, need, sum(needs.values())), shape, number, tell)
        for name, need in needs.items()
        if need
    }


def is_divided(length: int, held_out: int, writers: int, blocks: BlockOrder | None = None) -> bool:
    """Say whether there are so many samples that each preprocessor has its own in every epoch, and in every window."""
    return length + held_out >= 64 * writers and (blocks is None or blocks.strata >= writers)


def has_own_blocks(dataset: Dataset, writers: int) -> bool:
    """Say whether the order goes by blocks, and each preprocessor reads blocks of its own."""
    blocks = dataset.orders.blocks
    return blocks is not None and writers > 1 and is_divided(dataset.length, dataset.held_out, writers, blocks)


def _need(dataset: Dataset, shape: RingShape, number: int) -> int:
    """Bytes that all samples of a preprocessor take, and those of a slot twice, which lie there meanwhile."""
    own = -(-(dataset.length + dataset.held_out - number) // shape.writers)
    size = bytes_of_prepared(dataset)
    return round(_MARGIN * size * own) + 2 * size * _largest(dataset, shape)


def _part(budget: StoreBudget, need: int, needs: int) -> StoreBudget:
    """The part of one data set: memory first, the disk for what is left."""
    memory = min(need, budget.memory * need // needs)
    disk = min(need - memory, budget.disk * need // needs)
    return StoreBudget(memory, disk, budget.folder)


def _store(
    dataset: Dataset, budget: StoreBudget, shape: RingShape, number: int, tell: Callable[[str], None]
) -> SampleStore:
    layout = dataset.prepared_layout
    assert layout is not None, "only data sets that can be kept are"
    samples = dataset.length + dataset.held_out
    keeping = Keeping(shape.writers, number, shape.lanes, _largest(dataset, shape))
    return SampleStore(budget, layout, dataset.orders, samples, keeping, tell)


def _largest(dataset: Dataset, shape: RingShape) -> int:
    """Samples of a slot that one preprocessor makes, where it is an unlucky one; all, where the last blocks are its."""
    if dataset.orders.blocks is not None:
        return shape.slot_samples
    return min(shape.slot_samples, 2 * shape.slot_samples // shape.writers + 8)
