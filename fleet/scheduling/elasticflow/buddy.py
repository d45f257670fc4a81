"""Buddy placement: aligned blocks, best fit, migration against fragmentation (ElasticFlow, ASPLOS'23, 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Allocation


@dataclass(frozen=True, eq=False)
class BuddyTree:
    """The blocks of a cluster: 2^k devices, numbered from a multiple of 2^k on.

    The numbers of a node's devices begin at a multiple of a power of two that holds them all; so a block lies within a
    node, or holds whole ones. A set of devices is the bits of a number.

    Args:
        cluster: the machine.
    """

    cluster: Cluster

    @cached_property
    def width(self) -> int:
        """Numbers that each node takes: the most devices of a node, rounded up to a power of two."""
        return 1 << (max(self.cluster.devices_per_node) - 1).bit_length()

    @cached_property
    def begins(self) -> tuple[int, ...]:
        """By k: where blocks of 2^k devices begin, until one holds all."""
        length = 1 << (self.width * self.cluster.nodes - 1).bit_length()
        return tuple(((1 << length) - 1) // ((1 << (1 << k)) - 1) for k in range(length.bit_length()))

    def number(self, device: int) -> int:
        """The number of a device of the cluster."""
        if self._same:
            return device
        node = self.cluster.node_of(device)
        return node * self.width + device - self.cluster.devices_of(node).start

    def device(self, number: int) -> int:
        """The device that has this number."""
        return number if self._same else self.cluster.devices_of(number // self.width).start + number % self.width

    def bits(self, devices: Iterable[int]) -> int:
        """These devices as bits."""
        bits = 0
        for device in devices:
            bits |= 1 << self.number(device)
        return bits

    @cached_property
    def all(self) -> int:
        """All devices as bits."""
        return self.bits(range(self.cluster.size))

    def block(self, begin: int, count: int) -> tuple[int, ...]:
        """The devices of a block."""
        if self._same:
            return tuple(range(begin, begin + count))
        return tuple(self.device(number) for number in range(begin, begin + count))

    def bits_of(self, devices: tuple[int, ...]) -> int:
        """Return the bits of devices in ascending order, sooner where they follow one another."""
        begin, count = devices[0], len(devices)
        if self._same and devices[-1] - begin == count - 1:
            return (1 << count) - 1 << begin
        return self.bits(devices)

    def whole(self, bits: int) -> Iterator[int]:
        """By k, from 0 on: the begins of the blocks of 2^k devices that lie within `bits`, as bits."""
        size = 1
        yield bits
        for begins in self.begins[1:]:
            bits &= bits >> size & begins
            size *= 2
            yield bits

    @cached_property
    def _same(self) -> bool:
        """Whether devices have the numbers that they have in the cluster."""
        return set(self.cluster.devices_per_node) == {self.width}


class FreeBlocks:
    """The largest free blocks, by size.

    Args:
        tree: the tree of the cluster.
        free: devices that are free, as bits.
    """

    def __init__(self, tree: BuddyTree, free: int) -> None:
        self._largest = []  # by k: begins of the blocks of 2^k devices that no larger one holds
        size = 1
        for begins in tree.begins[1:]:
            larger = free & free >> size & begins
            self._largest.append(free & ~(larger | larger << size))
            free, size = larger, 2 * size
        self._largest.append(free)

    def take(self, count: int) -> int | None:
        """Take so many devices, a power of two, from the smallest block that holds them; the first one on ties.

        Returns:
            The number of the first; None where no block holds so many.
        """
        k = count.bit_length() - 1
        for level in range(k, len(self._largest)):
            if blocks := self._largest[level]:
                begin = (blocks & -blocks).bit_length() - 1
                self._largest[level] ^= 1 << begin
                for half in range(k, level):
                    self._largest[half] |= 1 << begin + (1 << half)
                return begin
        return None


@dataclass
class Placer:
    """Places the jobs of one plan.

    Args:
        tree: the tree of the cluster.
        free: bits of the devices that nobody holds who keeps them.
        staying: gives the jobs that keep their devices, and these; asked only where no block is left.
        there: bits of all devices that work.
        may_move: whether one of those may be moved against fragmentation; None: all may.
    """

    tree: BuddyTree
    free: int
    staying: Callable[[], Allocation]
    there: int
    may_move: Callable[[str], bool] | None = None
    _blocks: FreeBlocks = field(init=False)
    _taken: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._blocks = FreeBlocks(self.tree, self.free)

    def place(self, counts: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Give each job a block of its count, a power of two; the largest first, then by name.

        Where enough devices are free but no block is, the one of which most is free already is cleared: its jobs
        migrate. Where none can be cleared, the job gets two blocks of half its count.

        Args:
            counts: job -> devices; together no more than are free.

        Returns:
            Job -> devices, ascending; of these jobs and of those that migrate.
        """
        placed: dict[str, tuple[int, ...]] = {}
        waiting = sorted(counts.items(), key=_largest_first, reverse=True)
        while waiting:
            name, count = waiting.pop()
            placed[name], evicted = self._take(count)
            if evicted:
                waiting = sorted([*waiting, *evicted], key=_largest_first, reverse=True)
        return placed

    def _take(self, count: int) -> tuple[tuple[int, ...], list[tuple[str, int]]]:
        """Devices for a job, and the jobs that leave them for it."""
        evicted: list[tuple[str, int]] = []
        begin = self._blocks.take(count)
        if begin is None and count > 1 and (evicted := self._clear(count)):
            begin = self._blocks.take(count)
        if begin is not None:
            block = (1 << count) - 1 << begin
            self.free, self._taken = self.free & ~block, self._taken | block
            return self.tree.block(begin, count), evicted
        if count == 1:
            raise ValueError("a job needs one more device, but none is free")
        (left, gone), (right, more) = self._take(count // 2), self._take(count // 2)
        return tuple(sorted(left + right)), gone + more

    def _clear(self, count: int) -> list[tuple[str, int]]:
        """Free the block of so many devices that takes the fewest from jobs, all smaller and movable; those jobs."""
        kept = self._taken
        for name, devices in self._staying.items():
            if len(devices) >= count or (self.may_move is not None and not self.may_move(name)):
                kept |= self.tree.bits_of(devices)
        begin = self._emptiest(count, self.there & ~kept)
        if begin is None:
            return []
        block = set(self.tree.block(begin, count))
        evicted = [(name, devices) for name, devices in self._staying.items() if not block.isdisjoint(devices)]
        for name, devices in evicted:
            self.free |= self.tree.bits_of(devices)
            del self._staying[name]
        self._blocks = FreeBlocks(self.tree, self.free)
        return [(name, len(devices)) for name, devices in evicted]

    def _emptiest(self, count: int, within: int) -> int | None:
        """The begin of the block of so many devices, all of these, of which most are free; None: there is none."""
        left = next(islice(self.tree.whole(within), count.bit_length() - 1, None), 0)
        best, most = None, -1
        while left:
            begin = (left & -left).bit_length() - 1
            if (free := (self.free >> begin & (1 << count) - 1).bit_count()) > most:
                best, most = begin, free
            left &= left - 1
        return best

    @cached_property
    def _staying(self) -> dict[str, tuple[int, ...]]:
        return dict(self.staying())


def _largest_first(job: tuple[str, int]) -> tuple[int, str]:
    return -job[1], job[0]
