"""What loaders of one node do when one of them, a preprocessor, the service or everything is killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from preprocess import DataSpecError, ServiceError, SharedLoader
from preprocess.samples.errors import RingTimeout
from tests.preprocess.support.commanded import CommandedLoader, service_of
from tests.preprocess.support.counting import counted

Start = Callable[..., CommandedLoader]


def running_service(folder: Path) -> psutil.Process:
    service = service_of(folder)
    assert service is not None
    return service


def kill(process: psutil.Process) -> None:
    process.send_signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=10)


@pytest.fixture
def expected(start_loader: Start) -> list[str]:
    """The batches of epoch 0 and 1, from a loader that nothing happens to."""
    alone = start_loader(name="alone").ready()
    return [*alone.ask("epoch"), *alone.ask("epoch")]


def rest_of(loader: CommandedLoader) -> list[str]:
    batches = []
    while (batch := loader.ask("next")) is not None:
        batches.append(batch)
    return batches


def test_killed_reader_does_not_hold_the_others(start_loader: Start, expected: list[str]) -> None:
    dying, living = start_loader(readers=2), start_loader(readers=2)
    for loader in (dying, living):
        loader.tell("iterate")
    for loader in (dying, living):
        loader.ready().answer()
    assert dying.ask("next") == living.ask("next") == expected[0]
    dying.kill()
    assert rest_of(living) == expected[1:13]
    assert living.ask("epoch") == expected[13:]


def test_killed_preprocessor_is_replaced(start_loader: Start, loader_folder: Path, expected: list[str]) -> None:
    loader = start_loader(workers=2).ready()
    loader.ask("iterate")
    batches = [loader.ask("next") for _ in range(3)]
    for worker in running_service(loader_folder).children():
        kill(worker)
    assert batches + rest_of(loader) == expected[:13]


def test_killed_service_is_started_again(start_loader: Start, loader_folder: Path, expected: list[str]) -> None:
    loaders = [start_loader(readers=2), start_loader(readers=2)]
    for loader in loaders:
        loader.tell("iterate")
    for loader in loaders:
        loader.ready().answer()
    batches = [[loader.ask("next")] for loader in loaders]
    kill(running_service(loader_folder))
    for loader in loaders:
        loader.tell("next")
    for loader, got in zip(loaders, batches, strict=True):
        got.append(loader.answer())
    for _ in range(2, 13):
        for loader in loaders:
            loader.tell("next")
        for loader, got in zip(loaders, batches, strict=True):
            got.append(loader.answer())
    assert batches[0] == batches[1] == expected[:13]


def test_nothing_is_left_when_everything_is_killed(
    start_loader: Start, loader_folder: Path, expected: list[str]
) -> None:
    loader = start_loader().ready()
    loader.ask("iterate")
    loader.ask("next")
    service = running_service(loader_folder)
    named = [found.path for found in service.memory_maps() if found.path.startswith("/dev/shm")]
    assert not named, "memory with a name outlives its processes"
    for process in (*service.children(), service):
        kill(process)
    loader.kill()
    assert start_loader().ready().ask("epoch") == expected[:13]


def test_service_ends_when_nobody_needs_it(start_loader: Start, loader_folder: Path) -> None:
    loader = start_loader().ready()
    service = running_service(loader_folder)
    workers = service.children()
    loader.end()
    gone, alive = psutil.wait_procs([service, *workers], timeout=20)
    assert not alive and service_of(loader_folder) is None


def test_loader_goes_on_in_the_middle_of_an_epoch(start_loader: Start, expected: list[str]) -> None:
    first = start_loader().ready()
    first.ask("iterate")
    assert [first.ask("next") for _ in range(5)] == expected[:5]
    state = first.ask("state")
    first.kill()
    second = start_loader(workers=3).ready()
    second.ask(f"load {str(state).replace(chr(39), chr(34))}")
    assert second.ask("epoch") == expected[5:13]
    assert second.ask("epoch") == expected[13:]


def test_sample_that_cannot_be_read_is_named(loader_folder: Path) -> None:
    told = pytest.raises(ServiceError, match=r"train sample 7, epoch 0: OSError: bad sector")
    with SharedLoader(counted(loader_folder, broken=[7]), 8, linger=0.0) as loader, told:
        list(loader)


def test_skipped_sample_is_told(loader_folder: Path) -> None:
    data = counted(loader_folder, broken=[7]) | {"on_corrupt": "skip"}
    told = pytest.warns(UserWarning, match=r"train sample 7 \(OSError: bad sector\)")
    with SharedLoader(data, 8, workers=2, linger=0.0) as loader, told:
        targets = [int(target) for _, targets in loader for target in targets]
        (skipped,) = loader.skipped
    assert len(targets) == 103 and set(targets) == set(range(103)) - {7}
    assert targets.count(skipped.substitute) == 2


def test_too_many_skipped_samples_are_an_error(loader_folder: Path) -> None:
    data = counted(loader_folder, broken=[7, 9]) | {"on_corrupt": "skip", "corrupt_limit": 1}
    with (
        SharedLoader(data, 8, linger=0.0) as loader,
        pytest.warns(UserWarning),
        pytest.raises(ServiceError, match="the 1 of corrupt_limit"),
    ):
        list(loader)


def test_data_that_cannot_be_opened_is_named(loader_folder: Path) -> None:
    values = {"name": "lost", "train": {"source": "hdf5", "arguments": {"path": "lost.h5"}}}
    with pytest.raises(ServiceError, match=r"lost\.h5.*there is no such file"):
        SharedLoader(values, 8)


def test_loader_of_other_data_is_refused(loader_folder: Path, data_values: dict[str, Any]) -> None:
    told = pytest.raises(ServiceError, match="another data set")
    with SharedLoader(data_values, 8, name="mine", linger=0.0), told:
        SharedLoader(counted(loader_folder), 8, name="mine")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, "batch_size is a whole number"),
        ({"batch_size": 8, "replicas": 2, "ranks": (0, 2)}, "ranks are among 0 to 1"),
        ({"batch_size": 8, "held_out": True}, "no held-out samples"),
    ],
)
def test_unusable_arguments_are_told(loader_folder: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(DataSpecError, match=words):
        SharedLoader(counted(loader_folder), linger=0.0, **arguments)


def test_state_of_another_loader_is_refused(loader_folder: Path, data_values: dict[str, Any]) -> None:
    with SharedLoader(data_values, 8, linger=0.0) as loader, pytest.raises(DataSpecError, match="batch_size=4"):
        loader.load_state_dict(loader.state_dict() | {"batch_size": 4})


def test_loader_that_stands_still_is_named(start_loader: Start, data_values: dict[str, Any]) -> None:
    standing = start_loader().ready()
    standing.ask("iterate")
    standing.ask("next")
    told = pytest.raises(RingTimeout, match=rf"waits for reader 0 \(process {standing.pid}\), which has read")
    with SharedLoader(data_values, 8, seed=3, timeout=3.0) as loader, told:
        list(loader)


class Squares:
    """A data set that is an object of this process."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full(3, index * index, np.float32), index


def test_object_is_handed_over(loader_folder: Path) -> None:
    with (
        SharedLoader(Squares(), 4, linger=0.0) as loader,
        SharedLoader(Squares(), 4, held_out=True, linger=0.0) as other,
    ):
        assert sorted(int(target) for _, targets in loader for target in targets) == list(range(10))
        assert [float(row[0]) for inputs, _ in other for row in inputs] == [i * i for i in range(10)]


def test_a_folder_too_long_for_a_socket_is_told(
    loader_folder: Path, data_values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = loader_folder / ("deep" * 25)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(ValueError, match=r"a socket's path can have 107: set XDG_RUNTIME_DIR"):
        SharedLoader(data_values, 8)
