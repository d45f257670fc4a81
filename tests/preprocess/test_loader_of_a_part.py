"""Loaders of folds, bags and subsets: one stream for all, and the bytes of a plain DataLoader over a Subset."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset

from preprocess import Bag, Dataset, DatasetSpec, DataSpecError, Fold, Part, ServiceError, SharedLoader
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.part import MemberOrder
from tests.preprocess.support.commanded import CommandedLoader, service_of
from tests.preprocess.support.counting import counted

BATCH, LENGTH, SEED = 8, 103, 3
Start = Callable[..., CommandedLoader]

PARTS = {
    "subset": Part(subset=(90, 3, 17, 44, 5)),
    "head": Part(subset=40),
    "fold": Part(fold=Fold(2, 5, 0)),
    "bag": Part(bag=Bag(0.3, 7)),
    "all three": Part(subset=80, fold=Fold(0, 3, 1), bag=Bag(0.5, 2)),
}


@pytest.fixture
def data(data_values: dict[str, Any]) -> dict[str, Any]:
    """The digits without held-out samples of their own."""
    return {key: value for key, value in data_values.items() if key != "held_out"}


class Plain(torch.utils.data.Dataset[Any]):
    """The data set as one process makes it alone, in one epoch."""

    def __init__(self, values: dict[str, Any], epoch: int, kind: str = TRAIN) -> None:
        spec = DatasetSpec.from_json(values | {"held_out": values["train"]})
        self.made, self.epoch, self.kind = Dataset(spec), epoch, kind

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image, target = self.made.layout.empty(1)
        self.made.make(self.kind, SEED, self.epoch, index, image[0], target)
        return torch.from_numpy(image[0]), int(target[0])


def order_of(part: Part, epoch: int) -> list[int]:
    return MemberOrder(part.train(LENGTH), LENGTH, SEED).of_epoch(epoch).tolist()


def in_processes(part: Part | None, **more: Any) -> dict[str, Any]:
    """Arguments of a loader in another process."""
    return ({} if part is None else {"part": asdict(part)}) | more


def assert_alike(batches: list[Any], plain: DataLoader[Any]) -> None:
    for (images, targets), (theirs, their_targets) in zip(batches, plain, strict=True):
        assert torch.equal(images, theirs) and torch.equal(targets, their_targets)


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_part_has_the_bytes_of_a_plain_loader_over_a_subset(
    loader_folder: Path, data: dict[str, Any], part: Part
) -> None:
    with SharedLoader(data, BATCH, seed=SEED, part=part, workers=2, linger=0.0) as loader:
        for epoch in range(2):
            plain = DataLoader(Subset(Plain(data, epoch), order_of(part, epoch)), BATCH)
            assert len(loader) == len(plain)
            assert_alike(list(loader), plain)


def test_a_fold_is_held_out_as_it_is_in_the_data(loader_folder: Path, data: dict[str, Any]) -> None:
    part = Part(fold=Fold(1, 3, 5), bag=Bag(0.5, 5))
    with SharedLoader(data, BATCH, seed=SEED, part=part, held_out=True, linger=0.0) as loader:
        plain = DataLoader(Subset(Plain(data, 0, HELD_OUT), part.held_out(LENGTH).tolist()), BATCH)
        assert len(loader) == len(plain)
        for _ in range(2):
            assert_alike(list(loader), plain)


def test_without_a_fold_held_out_samples_are_those_of_the_data(
    loader_folder: Path, data_values: dict[str, Any]
) -> None:
    with (
        SharedLoader(data_values, BATCH, held_out=True, linger=0.0) as whole,
        SharedLoader(data_values, BATCH, held_out=True, part=PARTS["bag"]) as loader,
    ):
        assert_alike(list(loader), list(whole))  # type: ignore[arg-type]


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_are_dealt_to_as_by_distributed_sampler(
    loader_folder: Path, data: dict[str, Any], drop_last: bool
) -> None:
    """Among them a part of fewer samples than there are ranks, whose order is repeated."""
    for part in (PARTS["fold"], Part(subset=(7, 90))):
        with SharedLoader(
            data, BATCH, seed=SEED, part=part, replicas=4, ranks=(1, 3), drop_last=drop_last, linger=0.0
        ) as loader:
            items, subset = list(loader), Subset(Plain(data, 0), order_of(part, 0))
            for place, rank in enumerate((1, 3)):
                sampler: DistributedSampler[Any] = DistributedSampler(subset, 4, rank, shuffle=False)
                plain = DataLoader(subset, BATCH, sampler=sampler, drop_last=drop_last)
                assert len(loader) == len(plain)
                assert_alike([item[place] for item in items], plain)


def test_an_object_s_samples_are_divided_likewise(loader_folder: Path, data: dict[str, Any]) -> None:
    numbers, part = [(np.full(2, index), index) for index in range(30)], PARTS["fold"]
    with (
        SharedLoader(numbers, 4, part=part, name="numbers", linger=0.0) as train,
        SharedLoader(numbers, 4, part=part, name="numbers", held_out=True) as test,
    ):
        assert sorted(target for _, targets in train for target in targets.tolist()) == part.train(30).tolist()
        assert [target for _, targets in test for target in targets.tolist()] == part.held_out(30).tolist()


def test_scripts_with_other_parts_share_what_is_made_once(start_loader: Start, loader_folder: Path) -> None:
    parts = [Part(fold=Fold(index, 3, 0)) for index in range(3)] + [Part(fold=Fold(0, 2, 0), bag=Bag(0.2, 1))]
    values = counted(loader_folder)
    loaders = [start_loader(**in_processes(part, data=values, readers=4, workers=2)) for part in parts]
    for epoch in range(2):
        for loader in loaders:
            loader.tell("epoch")
        answers = [(loader.ready() if epoch == 0 else loader).answer() for loader in loaders]
        assert [len(batches) for batches in answers] == [-(-part.train_count(LENGTH) // BATCH) for part in parts]
    assert [loader.ask("sharers") for loader in loaders] == [4] * 4
    made = np.bincount(np.frombuffer((loader_folder / "record").read_bytes(), np.uint8))
    assert set(made.tolist()[1:]) == {2}, "once in each epoch; the first sample is looked at before"


def test_parts_of_other_seeds_share_what_is_kept(start_loader: Start, loader_folder: Path) -> None:
    values = counted(loader_folder, work=20_000) | {"transforms": [{"flip": {}}], "store": True}
    for seed in (3, 4):
        part = in_processes(Part(bag=Bag(0.8, seed)), data=values, seed=seed, name="kept", linger=10.0)
        start_loader(**part).ready().ask("epoch")
    read = (loader_folder / "record").read_bytes()
    assert len(read) < 2 * LENGTH, "a few are looked at first, to see what reading costs"
    service = service_of(loader_folder)
    assert service is not None
    for process in (*service.children(), service):
        process.send_signal(signal.SIGKILL)


def test_a_script_joins_in_the_middle_of_an_epoch(start_loader: Start, data: dict[str, Any]) -> None:
    early_part, late_part = PARTS["fold"], Part(fold=Fold(0, 2, 9), bag=Bag(0.6, 1))
    wanted = {}
    for name, part in (("early", early_part), ("late", late_part)):
        wanted[name] = start_loader(**in_processes(part, data=data, name=name)).ready().ask("epoch")
    early = start_loader(**in_processes(early_part, data=data)).ready()
    early.ask("iterate")
    batches = [early.ask("next") for _ in range(2)]
    late = start_loader(**in_processes(late_part, data=data)).ready()
    late.ask("iterate")
    early.tell("next")  # it comes when the other one has caught up
    head = late.ask("next")
    assert late.ask("sharers") == 2
    early.tell("rest")
    assert [head, *late.ask("rest")] == wanted["late"]
    assert [*batches, early.answer(), *early.answer()] == wanted["early"] and early.ask("sharers") == 2


def test_a_batch_that_spans_the_lane_outlasts_a_change_of_lanes(start_loader: Start, data: dict[str, Any]) -> None:
    """The large batch is half here when a third script comes, for which the lane begins anew."""
    part = PARTS["fold"]
    wanted = start_loader(**in_processes(part, data=data, batch_size=50, name="alone")).ready().ask("epoch")
    both = data | {"held_out": data["train"]}
    small = start_loader(data=both, batch_size=1, buffer=1, readers=2).ready()  # its lanes hold a few samples
    large = start_loader(**in_processes(part, data=both, batch_size=50, readers=2))
    for loader in (small, large):
        loader.tell("iterate")
    small.answer()
    large.ready().answer()
    large.tell("next")
    for _ in range(9):
        small.ask("next")
    third = start_loader(data=both, batch_size=1).ready()
    third.ask("iterate")
    small.tell("rest")
    third.tell("rest")
    large.tell("rest")  # it would hold the others up
    assert [large.answer(), *large.answer()] == wanted
    assert len(small.answer()) == LENGTH - 9 and len(third.answer()) == LENGTH


@pytest.mark.parametrize("who", ["service", "preprocessor"])
def test_a_death_changes_no_batch(start_loader: Start, loader_folder: Path, data: dict[str, Any], who: str) -> None:
    part = PARTS["fold"]
    wanted = start_loader(**in_processes(part, data=data, name="alone")).ready().ask("epoch")
    loader = start_loader(**in_processes(part, data=data, workers=2, linger=1.0)).ready()
    loader.ask("iterate")
    batches = [loader.ask("next") for _ in range(3)]
    service = service_of(loader_folder)
    assert service is not None
    dead = [*service.children(), service] if who == "service" else service.children()[:1]
    for process in dead:
        process.send_signal(signal.SIGKILL)
    psutil.wait_procs(dead, timeout=10)
    while (batch := loader.ask("next")) is not None:
        batches.append(batch)
    assert batches == wanted


def test_an_epoch_goes_on_with_the_same_part_alone(loader_folder: Path, data: dict[str, Any]) -> None:
    part = PARTS["fold"]
    with SharedLoader(data, BATCH, seed=SEED, part=part, linger=0.0) as loader:
        whole = list(loader)
        loader.set_epoch(0)
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
    with SharedLoader(data, BATCH, seed=SEED, part=part, linger=0.0) as again:
        again.load_state_dict(state)
        assert all(torch.equal(one, other) for (one, _), (other, _) in zip(again, whole[4:], strict=True))
        for other in (Part(fold=Fold(1, 5, 0)), None):
            with (
                SharedLoader(data | {"held_out": data["train"]}, BATCH, seed=SEED, part=other) as loader,
                pytest.raises(DataSpecError, match="of a loader with another part"),
            ):
                loader.load_state_dict(state)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(subset=104), "104.*the data set has 103 training samples; a subset has.*mend the part"),
        (Part(subset=(3, 3)), "none twice"),
        (Part(subset=tuple(range(200))), r"subset=\(0, 1, 2, 3, 4\).*all of 0 to 102"),
        (Part(subset=4, fold=Fold(0, 5, 0)), "5 folds of 4 samples"),
        (Part(subset="ten"), "'ten': a subset is how many of the first samples.*write subset=1000"),  # type: ignore[arg-type]
        ({"bag": 0.8}, "a part is a preprocess.Part; write Part"),
    ],
)
def test_a_part_that_cannot_be_is_told(loader_folder: Path, data: dict[str, Any], part: Any, words: str) -> None:
    with pytest.raises(DataSpecError, match=words):
        SharedLoader(data, BATCH, part=part, linger=0.0)


def test_a_fold_of_data_with_held_out_samples_is_refused(
    loader_folder: Path, data_values: dict[str, Any], data: dict[str, Any]
) -> None:
    with pytest.raises(DataSpecError, match="'digits' have held_out, which all evaluate on; take held_out away"):
        SharedLoader(data_values, BATCH, part=PARTS["fold"])
    with (
        SharedLoader(data, BATCH, name="one", linger=0.0),
        pytest.raises(ServiceError, match="of another data set, or without folds"),
    ):
        SharedLoader(data, BATCH, name="one", part=PARTS["fold"])
