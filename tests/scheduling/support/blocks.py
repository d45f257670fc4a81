"""What a buddy tree calls a block, found without its tables."""

from __future__ import annotations

from fleet.scheduling.elasticflow.buddy import BuddyTree


def is_block(tree: BuddyTree, devices: tuple[int, ...]) -> bool:
    """Whether these devices are 2^k in a row, numbered from a multiple of 2^k on."""
    begin, count = tree.number(devices[0]), len(devices)
    aligned = count.bit_count() == 1 and begin % count == 0
    return aligned and [tree.number(device) for device in devices] == list(range(begin, begin + count))
