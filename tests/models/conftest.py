"""A small ensemble of several families, trained once; what changes its run changes a copy."""

from __future__ import annotations

import pytest

from tests.live.support.ensembles import RunFolder
from tests.live.support.processes import run
from tests.models.support.families import FAMILIES, FIXED, REACHED, short_ensemble
from tests.warm.starting import nursery, started_cold

__all__ = ["nursery", "started_cold"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Three networks that train for two epochs, one with a schedule of that length, one that reaches its target."""
    ensemble = short_ensemble(tmp_path_factory.mktemp("short"), [*FAMILIES[:3], FIXED, REACHED])
    ended = run(ensemble.plain("run"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")
