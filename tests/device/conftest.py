"""The compiled rig, and processes that know it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.device.building import NoCompiler, built
from tests.device.rig import Rig
from tests.warm.starting import python_path, warmed


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """Processes forked from one that knows the rig and has touched no device."""
    try:
        folder = built()
    except NoCompiler as error:
        pytest.skip(str(error))
    with warmed(PYTHONPATH=python_path(folder)) as variables:
        yield Rig(variables)
