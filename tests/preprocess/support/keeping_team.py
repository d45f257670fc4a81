"""Preprocessors of one process that keep samples, and what lanes must carry with or without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.making.costs import open_stores
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import RingShape, lane_bytes
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from preprocess.store.finished_samples import FinishedSamples
from preprocess.store.sample_store import SampleStore, StoreBudget

SLOT, WRITERS, LANES = 8, 3, 4
RANDOM: tuple[Any, ...] = ({"random_resized_crop": {"size": 24}}, {"flip": {}})
FIXED: tuple[Any, ...] = ({"resize": {"shortest": 30}}, {"center_crop": {"size": 24}})


def opened(pictures: Path, **more: Any) -> Dataset:
    source, held_out = (SourceSpec("image_folder", {"path": str(pictures / part)}) for part in ("train", "held_out"))
    return Dataset(DatasetSpec("pictures", source, held_out, RANDOM, FIXED, **more))


class Team:
    """The preprocessors of a ring in this process, each with its stores, and with memory for finished samples."""

    def __init__(self, dataset: Dataset, budget: StoreBudget | None, finished: int = 0) -> None:
        self.dataset = dataset
        shape = RingShape(LANES, lane_bytes(dataset.layout, 64, SLOT, WRITERS), SLOT, LANES, WRITERS)
        self.ring, self.told = Ring.forked(shape), list[str]()
        self.generation = 0
        self.stores: list[dict[str, SampleStore]] = []
        self.finished: list[FinishedSamples] = []
        self.members = []
        for number in range(WRITERS):
            kept_ones = {} if budget is None else {"pictures": dataset}
            self.stores.append(open_stores(kept_ones, budget or StoreBudget(0), shape, number, self.told.append))
            kept = FinishedSamples(finished, WRITERS) if finished else None
            self.finished += [kept] if kept is not None else []
            self.members.append(
                Preprocessor(self.ring, number, {"pictures": dataset}, stores=self.stores[-1], finished=kept)
            )

    @property
    def prepared(self) -> int:
        return sum(store["pictures"].statistics.prepared for store in self.stores if store)

    def open(
        self,
        lane: int,
        seed: int,
        schedule: LaneSchedule,
        makers: tuple[int, ...] = (),
        divided: bool = True,
        awaited_from: int | None = None,
    ) -> LaneReader:
        """Open a lane that this process reads as reader `lane`."""
        self.generation += 1
        key = StreamKey("pictures", seed, schedule.first_epoch)
        spec = LaneSpec(
            lane, self.generation, key, schedule, self.dataset.layout, {0: (lane,)}, None, makers, divided,
            awaited_from=awaited_from,
        )  # fmt: skip
        self.ring.lanes[lane].open(
            spec.layout, (lane,), spec.generation, makers=spec.makers, divided=spec.divided, timeout=5
        )
        for member in self.members:
            if spec.is_made_by(member.index):
                member.open_lane(spec)
        return self.ring.lanes[lane].reader(lane, spec.layout, spec.generation)

    def read(self, reader: LaneReader, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The next samples of a lane."""
        start = reader.released
        parts = []
        for begin in range(start, start + count, SLOT):
            end = min(begin + SLOT, start + count)
            if reader.available < end:
                while sum(member.step() for member in self.members):
                    pass
                assert reader.wait(end, timeout=1)
            parts.append(reader.take(np.arange(begin, end)))
            reader.release(end)
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def close(self, lane: int, reader: LaneReader) -> None:
        reader.leave()
        for member in self.members:
            member.close_lane(lane)


class Visits:
    """Lanes of a team that come and go; whatever is read of one is held against what it must carry."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._open: dict[int, tuple[LaneReader, LaneSchedule, int, int]] = {}

    def __contains__(self, lane: int) -> bool:
        return lane in self._open

    def begin(self, lane: int, seed: int, schedule: LaneSchedule, *more: Any) -> None:
        """Open a lane, as `Team.open` does."""
        self._open[lane] = self._team.open(lane, seed, schedule, *more), schedule, seed, 0

    def read_on(self, lane: int, count: int) -> None:
        """Read on in a lane."""
        reader, schedule, seed, place = self._open[lane]
        assert_same(self._team.read(reader, count), expected(self._team.dataset, schedule, seed, place, count))
        self._open[lane] = reader, schedule, seed, place + count

    def end(self, lane: int) -> None:
        """Close a lane."""
        self._team.close(lane, self._open.pop(lane)[0])


def expected(dataset: Dataset, schedule: LaneSchedule, seed: int, start: int, count: int) -> tuple[Any, Any]:
    inputs, targets = dataset.layout.empty(count)
    for _ in dataset.fill(schedule, seed, start, inputs, targets):
        pass
    return inputs, targets


def assert_same(found: tuple[np.ndarray, np.ndarray], wanted: tuple[np.ndarray, np.ndarray]) -> None:
    for one, other in zip(found, wanted):
        assert np.array_equal(one, other)


def whole(dataset: Dataset, **more: Any) -> LaneSchedule:
    return LaneSchedule(dataset.length, 5, dataset.held_out, **more)
