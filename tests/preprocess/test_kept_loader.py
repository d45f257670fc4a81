"""Loaders whose service keeps prepared samples: the same batches, whatever dies, and each sample read once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.preprocess.support.commanded import CommandedLoader, service_of
from tests.preprocess.support.counting import counted, write_counted

Start = Callable[..., CommandedLoader]
BATCHES = 29  # of 230 pictures


@pytest.fixture
def data(pictures: Path) -> dict[str, Any]:
    """Pictures that are decoded; the first batch of a loader with `store=0` keeps none."""
    return {
        "name": "pictures",
        "train": {"source": "image_folder", "arguments": {"path": str(pictures / "train")}},
        "held_out": {"source": "image_folder", "arguments": {"path": str(pictures / "held_out")}},
        "transforms": [{"random_resized_crop": {"size": 24}}, {"flip": {}}],
        "held_out_transforms": [{"resize": {"shortest": 30}}, {"center_crop": {"size": 24}}],
    }


def epochs(loader: CommandedLoader, count: int) -> list[str]:
    return [batch for _ in range(count) for batch in loader.ask("epoch")]


def test_loaders_of_other_seeds_get_the_batches_of_loaders_alone(start_loader: Start, data: dict[str, Any]) -> None:
    wanted = [epochs(start_loader(data=data, seed=seed, store=0, name=f"alone {seed}").ready(), 3) for seed in (3, 4)]
    loaders = [start_loader(data=data, seed=seed, workers=3, readers=2, name="together") for seed in (3, 4)]
    got: list[list[str]] = [[], []]
    for _ in range(3):
        for loader in loaders:
            loader.tell("epoch")
        for loader, batches in zip(loaders, got):
            batches += (loader if hasattr(loader, "pid") else loader.ready()).answer()
    assert got == wanted and len(got[0]) == 3 * BATCHES


@pytest.mark.parametrize("who", ["preprocessors", "reader"])
def test_a_death_changes_no_batch(start_loader: Start, loader_folder: Path, data: dict[str, Any], who: str) -> None:
    wanted = epochs(start_loader(data=data, store=0, name="alone").ready(), 2)
    loader = start_loader(data=data, workers=3, readers=2, name="kept")
    other = start_loader(data=data, workers=3, readers=2, name="kept", seed=9)
    for each in (loader, other):
        each.tell("iterate")
    for each in (loader, other):
        each.ready().answer()
    batches = [loader.ask("next") for _ in range(7)]
    other.ask("next")
    service = service_of(loader_folder)
    assert service is not None
    if who == "reader":
        other.kill()
    else:
        for worker in service.children():
            worker.send_signal(signal.SIGKILL)
    while (batch := loader.ask("next")) is not None:
        batches.append(batch)
    assert batches + loader.ask("epoch") == wanted


def test_memory_of_what_is_kept_goes_with_its_processes(
    start_loader: Start, loader_folder: Path, data: dict[str, Any]
) -> None:
    loader = start_loader(data=data, workers=3, name="kept").ready()
    loader.ask("epoch")
    service = service_of(loader_folder)
    assert service is not None
    processes = [service, *service.children()]
    for process in processes:
        assert not [found.path for found in process.memory_maps() if found.path.startswith("/dev/shm")]
        process.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs(processes, timeout=10)[1]


def test_each_sample_is_read_once_for_all_seeds_and_epochs(
    start_loader: Start, loader_folder: Path, tmp_path: Path
) -> None:
    write_counted(loader_folder)
    record = tmp_path / "record"
    data = counted(tmp_path) | {"transforms": [{"flip": {}}], "store": True}
    data["train"]["arguments"] |= {"work": 20_000}
    loaders = [start_loader(data=data, seed=seed, readers=2, name="counted") for seed in (3, 4)]
    for _ in range(2):
        for loader in loaders:
            loader.tell("epoch")
        for loader in loaders:
            (loader if hasattr(loader, "pid") else loader.ready()).answer()
    read = record.read_bytes()
    assert sorted(read[-103:]) == list(range(103))
    assert len(read) < 2 * 103, "a few are looked at first, to see what reading costs"
