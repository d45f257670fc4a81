"""Real runs of small ensembles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.live.support.ensembles import Ensemble, RunFolder, cnn, counting, mlp, write_ensemble
from tests.live.support.processes import run
from tests.warm.starting import nursery, pinned, started_cold

__all__ = ["nursery", "pinned", "started_cold"]

Finished = Callable[[str, "list[str]"], RunFolder]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Three networks, two epochs: with a perceptron's dropout, with BatchNorm, with books of what was trained on."""
    return write_ensemble(tmp_path_factory.mktemp("small"), [mlp(), cnn(), counting()], policy={"restart": 3.0})


@pytest.fixture(scope="session")
def alone(small: Ensemble) -> RunFolder:
    """The small ensemble trained on one device: what all other runs of it are held against."""
    ended = run(small.plain("alone"), small.folder)
    assert ended.code == 0, ended.output
    return small.left("alone")
