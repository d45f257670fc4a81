"""The order is DistributedSampler's, and the randomness of a sample depends on its names alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler, TensorDataset

from preprocess.samples.order import HELD_OUT, TRAIN, SampleGenerator, epoch_order, seed_global_generators
from preprocess.samples.stream import LaneSchedule


@given(st.integers(1, 70), st.integers(1, 9), st.integers(0, 2**40), st.integers(0, 5))
def test_order_is_that_of_distributed_sampler(length: int, ranks: int, seed: int, epoch: int) -> None:
    """Padded from its own head to a multiple of the ranks, and dealt in turn."""
    tail = -length % ranks
    order = epoch_order(length, seed, epoch)
    places = np.arange(length + tail)
    padded = order[places % length]
    everything = TensorDataset(torch.arange(length))
    for rank in range(ranks):
        sampler: DistributedSampler[Any] = DistributedSampler(
            everything, ranks, rank, shuffle=True, seed=seed, drop_last=False
        )
        sampler.set_epoch(epoch)
        assert list(sampler) == padded[rank::ranks].tolist()
    assert LaneSchedule(length, tail).places == length + tail and order.dtype == np.int64


def test_draws_depend_on_the_names_alone() -> None:
    one, two = SampleGenerator(), SampleGenerator()
    wanted = {(e, s, p): one(7, e, s, p).random(5) for e in range(3) for s in range(4) for p in (TRAIN, HELD_OUT)}
    two(8, 2, 1).normal(size=3)
    for (epoch, sample, path), draws in reversed(wanted.items()):
        generator = two(7, epoch, sample, path)
        generator.integers(256, dtype=np.uint8)  # leaves half a word in the buffer of the reused bit generator
        assert np.array_equal(two(7, epoch, sample, path).random(5), draws)
    assert len({tuple(draws) for draws in wanted.values()}) == len(wanted)


def test_draws_are_those_of_a_new_philox() -> None:
    found = SampleGenerator()(5, 3, 11).random(4)
    key = np.random.Philox(0).state
    key["state"]["key"][:] = (
        5,
        int.from_bytes(__import__("hashlib").blake2b(b"preprocess/train", digest_size=8).digest(), "little"),
    )
    key["state"]["counter"][:] = 0, 0, 3, 11
    fresh = np.random.Philox(0)
    fresh.state = key
    assert np.array_equal(found, np.random.Generator(fresh).random(4))


@pytest.mark.parametrize("seed", [0, -1, 2**64 - 1, 2**70])
def test_any_seed_is_good(seed: int) -> None:
    assert 0 <= SampleGenerator()(seed, 0, 0).random() < 1


def test_global_generators_follow_the_sample() -> None:
    generator = SampleGenerator()

    def draws(sample: int) -> tuple[float, float, float]:
        seed_global_generators(generator(1, 2, sample))
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    first = draws(3)
    assert draws(4) != first and draws(3) == first
