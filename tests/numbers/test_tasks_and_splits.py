"""Whole runs: splits of samples, tasks as people write them, and keys of specs, against stock DDP."""

from __future__ import annotations

from types import ModuleType

import pytest

from benchmarks.numbered import splits, tasks


@pytest.mark.slow
@pytest.mark.parametrize("subject", [splits, tasks])
def test_all_bars_hold(subject: ModuleType) -> None:
    missed = [bar for bar in subject.bars() if not bar["ok"]]
    assert not missed
