"""Which loaders read together: pure rules, no sockets and no clock.

Loaders that want the same epoch of the same data share a lane. Three rules decide who waits for whom:

* start: the first readers of a service wait for as many as they said they expect;
* companions: the first that comes to the next epoch waits for those with which it read the last; they are paced
  by the slowest anyway (FLEET, MLSys'20, section 3), and would otherwise never meet again;
* catching up: a loader that comes to an epoch that others are reading joins them if that costs all of them less than
  making the rest of the epoch twice: see `preprocess.sharing.joining`. As long as somebody's pace, or what making a
  sample takes, is not known, it joins if the foremost waits for no more samples than are left of the epoch then.

The first two waits are bounded by `patience`; somebody who was waited for in vain is not waited for again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from preprocess.sharing.joining import PreparingCosts, Reader, joins


@dataclass(frozen=True, order=True)
class StreamName:
    """What loaders must want alike to read together: which part of the data, seed and epoch."""

    kind: str
    seed: int
    epoch: int


@dataclass(frozen=True)
class ReadingGroup:
    """Loaders that shall read together, from the rearmost place of them on.

    Attributes:
        number: its name; a group that is joined or left keeps it.
        stream: what they read.
        places: the place of each loader in the epoch.
        tail: the most places that one of them wants appended to the order.
    """

    number: int
    stream: StreamName
    places: Mapping[int, int]
    tail: int

    @property
    def first_place(self) -> int:
        """The rearmost place."""
        return min(self.places.values())


@dataclass(frozen=True)
class _Wish:
    stream: StreamName
    place: int
    tail: int
    since: float


@dataclass
class ReadingGroups:
    """Who reads what with whom, and who waits.

    Args:
        patience: seconds that a loader waits for others at the start of an epoch.
        length: gives the number of places of a stream with a tail.
        costs: gives what making samples of a kind takes with a second lane so many places behind the first; None:
            nobody knows.
    """

    patience: float
    length: Callable[[StreamName, int], int]
    costs: Callable[[str, int], PreparingCosts | None] = lambda kind, lag: None
    groups: list[ReadingGroup] = field(default_factory=list)
    _formed: int = 0
    _expected: dict[int, int] = field(default_factory=dict)
    _begun: dict[str, int] = field(default_factory=dict)
    _companions: dict[int, frozenset[int]] = field(default_factory=dict)
    _wishes: dict[int, _Wish] = field(default_factory=dict)
    _rates: dict[int, float | None] = field(default_factory=dict)

    def arrive(self, loader: int, expected: int) -> None:
        """Note a loader that is there, and how many it expects to be."""
        self._expected[loader] = expected

    def depart(self, loader: int) -> None:
        """Forget a loader."""
        self.rest(loader)
        self._expected.pop(loader, None)
        self._companions.pop(loader, None)
        self._rates.pop(loader, None)

    def rest(self, loader: int) -> None:
        """Note that a loader reads nothing now."""
        self._wishes.pop(loader, None)
        group = self.group_of(loader)
        if group is not None:
            self._remove(group, loader)

    def want(self, loader: int, stream: StreamName, place: int, tail: int, now: float, rate: float = 0.0) -> None:
        """Note what a loader wants to read from now on.

        Args:
            rate: samples/s that it reads while none is late; 0: nobody knows.
        """
        self._rates[loader] = rate or None
        self.rest(loader)
        if loader not in self._companions:
            self._begun[stream.kind] = self._begun.get(stream.kind, 0) + 1
            self._companions[loader] = frozenset()
        self._wishes[loader] = _Wish(stream, place, tail, now)

    def form(self, now: float, places: Mapping[int, int]) -> list[ReadingGroup]:
        """Return the groups to form now; they are then among `groups`.

        Args:
            now: seconds of any clock, the same as in `want`.
            places: the present place of each loader that reads.
        """
        return [group for stream in self._streams_wanted() for group in self._form(stream, now, places)]

    def form_anew(self, places: Mapping[int, int]) -> list[ReadingGroup]:
        """Form every group again from the present places of its members."""
        for number, group in enumerate(self.groups):
            present = {member: places.get(member, place) for member, place in group.places.items()}
            self.groups[number] = replace(group, places=present)
        return list(self.groups)

    def group_of(self, loader: int) -> ReadingGroup | None:
        """Return the group in which a loader reads."""
        return next((group for group in self.groups if loader in group.places), None)

    def _streams_wanted(self) -> list[StreamName]:
        return sorted({wish.stream for wish in self._wishes.values()})

    def _form(self, stream: StreamName, now: float, places: Mapping[int, int]) -> Iterable[ReadingGroup]:
        waiting = {loader: wish for loader, wish in self._wishes.items() if wish.stream == stream}
        must_wait = self._must_wait(stream, waiting, now)
        for loader, wish in sorted(waiting.items(), key=lambda item: (item[1].place, item[0])):
            group = self._group_to_join(stream, loader, places)
            if group is None and must_wait:
                continue
            self._add(group or self._new_group(stream), loader, wish, places)
            del self._wishes[loader]
        return [group for group in self.groups if group.places.keys() & waiting.keys() - self._wishes.keys()]

    def _new_group(self, stream: StreamName) -> ReadingGroup:
        self._formed += 1
        self.groups.append(ReadingGroup(self._formed, stream, {}, 0))
        return self.groups[-1]

    def _group_to_join(self, stream: StreamName, loader: int, places: Mapping[int, int]) -> ReadingGroup | None:
        mine, rate = self._wishes[loader].place, self._rates[loader]
        for group in self.groups:
            if group.stream != stream or not group.places:
                continue
            members = [places.get(member, place) for member, place in group.places.items()]
            rear, front = min(*members, mine), max(*members, mine)
            end = self.length(stream, max(group.tail, self._wishes[loader].tail))
            follows = mine == rear  # else the group does, and the loader waits
            rates = [known for member in group.places if (known := self._rates[member]) is not None]
            theirs = min(rates) if len(rates) == len(members) else None
            others = Reader(front if follows else rear, end, len(members), theirs)
            own = Reader(rear if follows else front, end, 1, rate)
            if joins(others, own, self.costs(stream.kind, front - rear)):
                return group
        return None

    def _must_wait(self, stream: StreamName, waiting: Mapping[int, _Wish], now: float) -> bool:
        """Say whether those who wait for a stream should go on waiting for others."""
        if now - min(wish.since for wish in waiting.values()) >= self.patience:
            return False
        if self._begun[stream.kind] < max(self._expected[loader] for loader in waiting):
            return True
        companions = frozenset[int]().union(*(self._companions[loader] for loader in waiting))
        return any(self._may_come(loader, stream) for loader in companions & self._expected.keys() - waiting.keys())

    def _may_come(self, loader: int, stream: StreamName) -> bool:
        """Say whether a companion may still want the stream: it does not wait for, or read, a later one already."""
        wish, group = self._wishes.get(loader), self.group_of(loader)
        at = wish.stream if wish else group.stream if group else None
        return at is None or ((at.kind, at.seed) == (stream.kind, stream.seed) and at.epoch < stream.epoch)

    def _add(self, group: ReadingGroup, loader: int, wish: _Wish, places: Mapping[int, int]) -> None:
        members = {member: places.get(member, place) for member, place in group.places.items()}
        joined = replace(group, places=members | {loader: wish.place}, tail=max(group.tail, wish.tail))
        self.groups[self.groups.index(group)] = joined
        for member in joined.places:
            self._companions[member] = frozenset(joined.places)

    def _remove(self, group: ReadingGroup, loader: int) -> None:
        left = {member: place for member, place in group.places.items() if member != loader}
        self.groups.remove(group)
        if left:
            self.groups.append(replace(group, places=left))
