"""Independent processes of one node read the same samples, made once, whatever happens to one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocess import Dataset, DatasetSpec, SharedLoader, SourceError
from preprocess.samples.stream import LaneSchedule
from tests.preprocess.support.commanded import CommandedLoader
from tests.preprocess.support.counting import counted

BATCH = 8

Start = Callable[..., CommandedLoader]


def plain_epoch(values: dict[str, Any], epoch: int, replicas: int = 1, seed: int = 3) -> tuple[Any, Any]:
    """The samples of an epoch as one process makes them alone, dealt out in full."""
    dataset = Dataset(DatasetSpec.from_json(values))
    tail = -dataset.length % replicas
    inputs, targets = dataset.layout.empty(dataset.length + tail)
    schedule = LaneSchedule(dataset.length, tail=tail, first_epoch=epoch)
    for _ in dataset.fill(schedule, seed, 0, inputs, targets):
        pass
    return inputs, targets


def test_batches_are_those_of_one_process_alone(loader_folder: Path, data_values: dict[str, Any]) -> None:
    with SharedLoader(data_values, BATCH, seed=3, workers=2, linger=0.0) as loader:
        for epoch in range(3):
            batches = list(loader)
            inputs, targets = plain_epoch(data_values, epoch)
            assert len(batches) == len(loader) == 13
            assert torch.equal(torch.cat([batch[0] for batch in batches]), torch.from_numpy(inputs))
            assert torch.equal(torch.cat([batch[1] for batch in batches]), torch.from_numpy(targets))


def test_held_out_samples_come_in_their_own_order(loader_folder: Path, data_values: dict[str, Any]) -> None:
    with SharedLoader(data_values, BATCH, held_out=True, linger=0.0) as loader:
        first, second = list(loader), list(loader)
    dataset = Dataset(DatasetSpec.from_json(data_values))
    inputs, targets = dataset.layout.empty(17)
    schedule = LaneSchedule(dataset.length, held_out=17, first_place=dataset.length)
    assert list(dataset.fill(schedule, 0, 0, inputs, targets))[-1] == 17
    assert torch.equal(torch.cat([batch[1] for batch in first]), torch.from_numpy(targets))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(first, second, strict=True))


def test_virtual_workers_are_dealt_to_as_by_distributed_sampler(
    loader_folder: Path, data_values: dict[str, Any]
) -> None:
    inputs, _ = plain_epoch(data_values, 0, replicas=4)
    with SharedLoader(data_values, BATCH, seed=3, replicas=4, ranks=(1, 2), linger=0.0) as loader:
        items = list(loader)
    assert len(items) == 4
    for place, rank in enumerate((1, 2)):
        assert torch.equal(torch.cat([item[place][0] for item in items]), torch.from_numpy(inputs[rank::4]))


def test_prepare_reads_in_place_and_gives_the_batch(loader_folder: Path, data_values: dict[str, Any]) -> None:
    inputs, _ = plain_epoch(data_values, 0)
    with SharedLoader(
        data_values, BATCH, seed=3, linger=0.0, prepare=lambda images, targets: images.float() / 255
    ) as loader:
        assert torch.equal(torch.cat(list(loader)), torch.from_numpy(inputs).float() / 255)


def test_a_batch_may_be_larger_than_what_the_service_keeps(start_loader: Start, data_values: dict[str, Any]) -> None:
    small = start_loader(batch_size=1, buffer=1).ready()
    large = start_loader(batch_size=103).ready()
    digests = start_loader(batch_size=103, name="alone").ready().ask("epoch")
    small.tell("epoch")
    assert large.ask("epoch") == digests
    assert len(small.answer()) == 103


def test_processes_share_what_is_made_once(start_loader: Start, loader_folder: Path) -> None:
    loaders = [start_loader(data=counted(loader_folder), readers=3, workers=2) for _ in range(3)]
    for epoch in range(2):
        for loader in loaders:
            loader.tell("epoch")
        answers = [loader.ready().answer() if epoch == 0 else loader.answer() for loader in loaders]
        assert answers[0] == answers[1] == answers[2] and len(answers[0]) == 13
    assert [loader.ask("sharers") for loader in loaders] == [3, 3, 3]
    made = np.bincount(np.frombuffer((loader_folder / "record").read_bytes(), np.uint8))
    made[0] -= 3  # the first sample was looked at to learn its shape
    assert made.tolist()[1:] == [2] * 102


def test_modules_of_the_current_folder_do_not_hide_python_s_own(
    started_cold: None, start_loader: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "random.py").write_text("raise RuntimeError('the wrong random')")
    monkeypatch.chdir(tmp_path)
    assert len(start_loader().ready().ask("epoch")) == 13


def test_late_comer_catches_up_and_shares_the_rest(start_loader: Start) -> None:
    early, late, alone = start_loader().ready(), start_loader(), start_loader(name="alone").ready()
    expected = alone.ask("epoch")
    early.ask("iterate")
    head = [early.ask("next") for _ in range(4)]
    late.ready().ask("iterate")
    assert late.ask("next") == expected[0]
    early.tell("next")  # it comes when the other one has caught up
    assert late.ask("sharers") == 2
    tail: list[str] = []
    for place in range(1, 13):
        late.tell("next")
        if place >= 4:
            tail.append(early.answer())
            early.tell("next")
        assert late.answer() == expected[place]
    assert early.answer() is None and early.ask("sharers") == 2
    assert head + tail == expected


def test_late_comer_whose_pace_is_known_gets_the_same_bytes(start_loader: Start) -> None:
    """Alone or together, as the costs that the service measures say."""
    early, late = start_loader().ready(), start_loader()
    early.ask("epoch")
    late.ready().ask("epoch")
    alone = start_loader(name="alone").ready()
    alone.ask("epoch")
    expected = alone.ask("epoch")
    early.ask("iterate")
    head = [early.ask("next") for _ in range(4)]
    late.ask("iterate")
    early.tell("next")
    tail: list[str] = []
    for place in range(13):
        late.tell("next")
        if place >= 4:
            tail.append(early.answer())
            early.tell("next")
        assert late.answer() == expected[place]
    assert early.answer() is None
    assert head + tail == expected


def test_an_iterable_style_data_set_is_refused_before_anything_is_started() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from ((torch.zeros(2), 0),) * 4

    with pytest.raises(SourceError, match="gives a Stream, an iterable-style data set.*__len__ and __getitem__"):
        SharedLoader(Stream(), BATCH)
