"""The compiled rig, and processes that know it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.device.building import NoCompiler, built
from tests.device.rig import Rig
from tests.warm.starting import rig_warmed

BUILD_SECONDS = 900
"""In which the first test of a session has the rig, on a machine that does much else."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "rig" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(BUILD_SECONDS))


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """Processes forked from one that knows the rig and has touched no device."""
    try:
        folder = built()
    except NoCompiler as error:
        pytest.skip(str(error))
    with rig_warmed(folder) as variables:
        yield Rig(variables)
