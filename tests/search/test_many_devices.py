"""Every sampler with every stopping rule decides the same on one device and on many, whatever is lost."""

from __future__ import annotations

import pytest

from fleet.search.of_spec import search_of
from tests.search.support.curves import cost, value
from tests.search.support.devices import train_on
from tests.search.support.driving import drive
from tests.search.support.sections import spec_of


@pytest.mark.parametrize("stopping", ["halving", "hyperband", "median"])
@pytest.mark.parametrize("sampler", ["random", "tpe", "cmaes"])
def test_one_device_and_sixty_four_decide_the_same(sampler: str, stopping: str) -> None:
    spec = spec_of(sampler=sampler, stopping=stopping, prefetch=2, trials=30)
    in_order = drive(search_of(spec, cost), value, early=0)
    assert len({in_order.values(trial)["model.arguments.dropout"] for trial in range(30)}) == 30
    for seed, devices in enumerate((1, 64)):
        found = search_of(spec, cost)
        assert train_on(found, value, devices, seed) > 2
        assert (found.digest(), found.best()) == (in_order.digest(), in_order.best())
        assert found.decisions == in_order.decisions
