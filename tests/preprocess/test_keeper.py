"""What is kept of prepared samples: what is read soonest, within the budget, whatever streams do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.samples.layout import Indices
from preprocess.samples.order import epoch_order
from preprocess.store.futures import KnownFutures, Paces
from preprocess.store.sample_store import Keeper

EPOCHS = 3


@dataclass
class Stream:
    """A stream that reads its epochs, and what a person would write down of it."""

    number: int
    orders: list[Indices]
    epoch: int = 0
    place: int = 0
    rate: float = 1.0
    open: bool = True
    read: list[int] = field(default_factory=list)

    def after(self, epoch: int) -> Indices | None:
        return self.orders[epoch + 1] if epoch + 1 < len(self.orders) else None

    def begin(self, futures: KnownFutures) -> None:
        futures.open(self.number, self.orders[self.epoch], self.after(self.epoch), self.place)

    def step(self, futures: KnownFutures, count: int) -> Indices:
        """The next samples, of one epoch; none if the stream has ended."""
        samples = self.orders[self.epoch][self.place : self.place + count]
        futures.read(self.number, samples)
        self.place += len(samples)
        if self.place == len(self.orders[0]):
            if self.epoch + 1 == len(self.orders):
                self.open = False
                futures.close(self.number)
            else:
                self.epoch, self.place = self.epoch + 1, 0
                futures.next_epoch(self.number, self.after(self.epoch))
        return samples

    def seconds_until(self, sample: int) -> float:
        """By looking through this epoch and the next."""
        ahead = [*self.orders[self.epoch][self.place :], *([] if (after := self.after(self.epoch)) is None else after)]
        return ahead.index(sample) / self.rate if self.open and sample in ahead else np.inf


def streams_of(samples: int, seeds: list[int], starts: list[int], rates: list[float]) -> list[Stream]:
    return [
        Stream(number, [epoch_order(samples, seed, epoch) for epoch in range(EPOCHS)], place=start % samples, rate=rate)
        for number, (seed, start, rate) in enumerate(zip(seeds, starts, rates))
    ]


def cases() -> st.SearchStrategy[tuple[int, list[Stream], list[tuple[int, int]]]]:
    """(samples, streams, turns): a turn is a stream and how many samples it reads."""
    turns = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=60)
    return st.integers(1, 23).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.tuples(*[st.lists(st.integers(0, 99), min_size=3, max_size=3)] * 2).flatmap(
                lambda both: st.lists(st.sampled_from([0.5, 1.0, 4.0]), min_size=3, max_size=3).map(
                    lambda rates: streams_of(n, both[0], both[1], rates)
                )
            ),
            turns,
        )
    )


def played(futures: KnownFutures, streams: list[Stream], turns: list[tuple[int, int]]) -> Iterator[Indices]:
    for stream in streams:
        stream.begin(futures)
    futures.at_paces(np.array([1.0 / stream.rate for stream in streams]))
    for number, count in turns:
        if streams[number].open:
            yield streams[number].step(futures, count)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_next_reading_is_the_one_in_the_orders(case: tuple[int, list[Stream], list[tuple[int, int]]]) -> None:
    samples, streams, turns = case
    futures = KnownFutures(samples, len(streams))
    for _ in played(futures, streams, turns):
        known = futures.seconds_until(np.arange(samples))
        for sample in range(samples):
            wanted = min(stream.seconds_until(sample) for stream in streams)
            assert known[sample] == wanted if wanted < np.inf else known[sample] > 2**28


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 400), st.integers(1, 8), st.integers(0, 9))
def test_the_books_of_what_is_kept_agree(
    case: tuple[int, list[Stream], list[tuple[int, int]]], budget: int, tries: int, seed: int
) -> None:
    samples, streams, turns = case
    futures, sizes = KnownFutures(samples, len(streams)), np.random.default_rng(seed).integers(1, 40, samples)
    keeper, kept = Keeper(futures, budget, np.random.default_rng(seed), tries), set[int]()
    for read in played(futures, streams, turns):
        assert keeper.holds(read).tolist() == [sample in kept for sample in read.tolist()]
        new = read[~keeper.holds(read)]
        choice = keeper.choose(new, sizes[new])
        assert set(choice.evicted.tolist()) <= kept
        kept = (kept - set(choice.evicted.tolist())) | set(new[choice.kept].tolist())
        assert keeper.used == sum(sizes[list(kept)]) <= budget and len(keeper) == len(kept)
        assert set(np.flatnonzero(keeper.holds(np.arange(samples))).tolist()) == kept


@settings(max_examples=40, deadline=None)
@given(cases(), st.integers(1, 20))
def test_with_a_window_of_all_nothing_kept_is_read_later_than_what_went(
    case: tuple[int, list[Stream], list[tuple[int, int]]], room: int
) -> None:
    samples, streams, turns = case
    futures = KnownFutures(samples, len(streams))
    keeper = Keeper(futures, room, np.random.default_rng(0), tries=samples)
    for read in played(futures, streams, turns):
        new = read[~keeper.holds(read)]
        choice = keeper.choose(new, np.ones(len(new), np.int64))
        gone = np.concatenate([choice.evicted, new[~choice.kept]])
        if len(gone):
            held = np.flatnonzero(keeper.holds(np.arange(samples)))
            assert len(held) == room
            assert futures.seconds_until(held).max() <= futures.seconds_until(gone).min()


def test_what_is_forgotten_is_not_held() -> None:
    futures = KnownFutures(10, 1)
    futures.open(0, np.arange(10), None)
    keeper = Keeper(futures, 100, np.random.default_rng(0))
    keeper.choose(np.arange(10), np.full(10, 10))
    keeper.forget(np.array([3, 9, 0]))
    assert np.flatnonzero(keeper.holds(np.arange(10))).tolist() == [1, 2, 4, 5, 6, 7, 8]
    assert (keeper.used, len(keeper)) == (70, 7)


def test_too_many_samples_are_told() -> None:
    with pytest.raises(ValueError, match="from 1 to"):
        KnownFutures(2**30 + 1, 1)


def test_a_stream_that_has_stopped_becomes_slower() -> None:
    paces = Paces(3)
    assert paces.seconds(0.0).tolist() == [1.0, 1.0, 1.0]
    for now in (0.0, 10.0, 20.0):
        paces.read(0, 5, now)
    assert paces.seconds(20.0).tolist() == [2.0, 2.0, 2.0], "the others are taken to be as fast"
    paces.read(1, 5, 20.0)
    paces.read(1, 5, 25.0)
    assert paces.seconds(25.0).tolist() == [2.0, 1.0, 1.5]
    assert paces.seconds(120.0).tolist() == [20.0, 19.0, 19.5]
    paces.forget(0)
    assert paces.seconds(25.0).tolist() == [1.0, 1.0, 1.0]
