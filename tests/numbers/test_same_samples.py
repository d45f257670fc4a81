"""Data sets are constructed under one seed, and fingerprints tell which are others."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.numbered.ways_to_split import SAMPLES, TRAINED, Clock, RandomSplit
from fleet.commands.train_options import TrainError
from fleet.commands.train_rank import datasets_alike
from preprocess import Dataset, DatasetSpec, SourceError, SourceSpec
from preprocess.samples.fingerprint import Fingerprint, drawn_samples
from preprocess.samples.order import HELD_OUT, TRAIN
from trainers import Group
from trainers.job.single_job import TaskDatasets

_PART = "benchmarks.numbered.ways_to_split:Part"


def _split(seed: int) -> dict[str, set[int]]:
    spec = DatasetSpec("split", SourceSpec(_PART), SourceSpec(_PART, {"train": False}), seed=seed)
    opened = Dataset(spec)
    sources = {kind: opened.preparation(kind).source for kind in (TRAIN, HELD_OUT)}
    return {kind: {int(source.read(n)[0][0]) for n in range(len(source))} for kind, source in sources.items()}


def _generators() -> list[Any]:
    numpy: Any = np.random.get_state()
    return [random.getstate(), numpy[1].tolist(), torch.get_rng_state().tolist()]


def test_both_parts_of_a_section_are_split_alike_whatever_was_drawn_before() -> None:
    before = _generators()
    first = _split(7)
    assert _generators() == before
    assert len(first[TRAIN]) == TRAINED and not first[TRAIN] & first[HELD_OUT]
    random.random(), np.random.rand(), torch.rand(1)
    assert _split(7) == first
    assert _split(8) != first


def test_a_split_is_that_of_a_script_that_seeds_torch() -> None:
    torch.manual_seed(7)
    numbers: Any = range(SAMPLES)
    parts: Any = torch.utils.data.random_split(numbers, [TRAINED, SAMPLES - TRAINED])
    assert _split(7)[HELD_OUT] == set(parts[1].indices)


def test_both_parts_of_a_task_are_split_alike(tmp_path: Any) -> None:
    before = _generators()
    data = TaskDatasets(RandomSplit())
    assert _generators() == before
    train, held_out = ({int(part[n][0]) for n in range(len(part))} for part in (data.train, data.held_out))
    assert len(train) == TRAINED and not train & held_out


def test_a_split_by_the_clock_is_refused() -> None:
    with Group.alone() as group, pytest.raises(TrainError, match=r"Clock: constructed a second time.*seed"):
        datasets_alike(Clock(), group, lambda: TaskDatasets(Clock()), print)


def test_samples_of_a_generator_of_its_own_are_told_of_and_drawn_from_its_start() -> None:
    from benchmarks.numbered.written_tasks import OwnGenerator

    told: list[str] = []
    with Group.alone() as group:
        data = datasets_alike(OwnGenerator(), group, lambda: TaskDatasets(OwnGenerator()), told.append)
    assert any("training sample 0 is another one when it is made again" in text for text in told)
    assert torch.equal(data.train[0][0], OwnGenerator().dataset(True)[0][0])


def test_fingerprints_tell_of_another_length_another_sample_and_nothing_else() -> None:
    def of(values: list[Any]) -> Fingerprint:
        return Fingerprint.of(len(values), values.__getitem__, 3, float("inf"))

    numbers = [(np.full(3, number), number) for number in range(50)]
    assert of(numbers).unlike(of(list(numbers))) == ""
    assert "50 samples on rank 0 and 49 on rank 1" in of(numbers).unlike(of(numbers[:-1]), "on rank 0", "on rank 1")
    drawn = drawn_samples(50, 3)
    assert len(drawn) > 10 and drawn[0] == 0 and drawn == drawn_samples(50, 3) != drawn_samples(50, 4)
    changed = [(image + (number == drawn[-1]), target) for number, (image, target) in enumerate(numbers)]
    assert f"sample {drawn[-1]}" in of(numbers).unlike(of(changed))


def test_samples_that_draw_from_the_global_generators_have_a_digest_and_others_none() -> None:
    count = itertools.count()
    steady = Fingerprint.of(5, lambda index: (index, random.random(), np.random.rand(), torch.rand(2)), 0)
    unsteady = Fingerprint.of(5, lambda index: next(count), 0)
    assert all(steady.digests) and not any(unsteady.digests)
    assert unsteady.unlike(Fingerprint.of(5, lambda index: next(count), 0)) == ""


def test_a_sample_that_cannot_be_read_is_no_other_sample() -> None:
    def fail(index: int) -> Any:
        raise KeyError(index)

    assert Fingerprint.of(5, fail, 0).unlike(Fingerprint.of(5, fail, 0)) == ""
    assert Fingerprint.of(5, fail, 0).unlike(Fingerprint.of(5, lambda index: index, 0))


def test_a_slow_data_set_has_a_shorter_fingerprint_that_agrees_with_a_longer_one() -> None:
    read = list(range(1000)).__getitem__
    short, whole = Fingerprint.of(1000, read, 0, -1.0), Fingerprint.of(1000, read, 0, float("inf"))
    assert len(short.digests) == 1 < len(whole.digests) and not short.unlike(whole)


def test_a_data_set_that_raises_says_so() -> None:
    with pytest.raises(SourceError, match="no_such"):
        Dataset(DatasetSpec("split", SourceSpec(_PART, {"no_such": 1})))
