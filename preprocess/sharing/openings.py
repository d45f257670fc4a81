"""Which lane each group of loaders reads."""

from __future__ import annotations

from collections.abc import Iterable

from preprocess.making.dataset import Dataset
from preprocess.ring.ring import Ring
from preprocess.samples.itinerary import Itinerary
from preprocess.samples.order import HELD_OUT
from preprocess.samples.stream import LaneSpec, StreamKey
from preprocess.sharing.reading_groups import ReadingGroup


class Openings:
    """The lanes that are open, by the number of the group.

    Args:
        ring: its lanes are given out.
        dataset: what they carry.
        samples: how many a lane holds.
        divided: preprocessors make the samples of a slot together, each those that it keeps, or those of its blocks.
    """

    def __init__(self, ring: Ring, dataset: Dataset, samples: int, divided: bool) -> None:
        self._ring, self._dataset, self._samples, self._divided = ring, dataset, samples, divided
        self._generation = 0
        self._specs: dict[int, LaneSpec] = {}

    def open(self, group: ReadingGroup) -> LaneSpec | None:
        """Open an idle lane for a group from its rearmost place on, or return None if there is none."""
        lane = next((lane for lane in self._ring.lanes if lane.is_idle), None)
        if lane is None:
            return None
        self._generation += 1
        spec = self._spec(lane.number, group)
        lane.open(
            spec.layout, spec.readers[0], spec.generation,
            samples=spec.samples, timeout=0.0, divided=spec.divided, ahead=spec.ahead,
        )  # fmt: skip
        self._specs[group.number] = spec
        return spec

    def of(self, group: ReadingGroup) -> LaneSpec | None:
        """Return the opening of a group."""
        return self._specs.get(group.number)

    def readers_of(self, lane: int, generation: int) -> tuple[int, ...]:
        """Return the loaders for which this opening was made, if it is the last of their group."""
        found = (spec for spec in self._specs.values() if (spec.lane, spec.generation) == (lane, generation))
        return next((spec.readers[0] for spec in found), ())

    def keep(self, groups: Iterable[ReadingGroup]) -> None:
        """Forget the openings of all other groups."""
        numbers = {group.number for group in groups}
        self._specs = {number: spec for number, spec in self._specs.items() if number in numbers}

    def present_places(self) -> dict[int, int]:
        """Return the place in the epoch up to which each loader has read."""
        return {
            reader: first_place(spec) + self._ring.lanes[spec.lane].cursor(reader)
            for spec in self._specs.values()
            for reader in spec.readers[0]
        }

    def _spec(self, lane: int, group: ReadingGroup) -> LaneSpec:
        stream, dataset = group.stream, self._dataset
        held_out = stream.kind == HELD_OUT
        itinerary = Itinerary(
            dataset.length,
            tail=0 if held_out else group.tail,
            held_out=dataset.held_out if held_out else 0,
            first_epoch=stream.epoch,
            first_place=dataset.length if held_out else group.first_place,
            last_epoch=stream.epoch,
        )
        key = StreamKey(dataset.name, stream.seed, stream.epoch)
        readers = tuple(sorted(group.places))
        return LaneSpec(
            lane, self._generation, key, itinerary, dataset.layout, {0: readers}, self._samples,
            divided=self._divided, blocks=dataset.orders.blocks,
        )  # fmt: skip


def first_place(spec: LaneSpec) -> int:
    """Return the place in its part of the epoch at which a lane begins; held-out samples begin at the first."""
    itinerary = spec.itinerary
    return 0 if itinerary.first_place == itinerary.places else itinerary.first_place
