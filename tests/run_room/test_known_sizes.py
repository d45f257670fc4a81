"""Sizes of jobs that are alike are found once, and are what each would be found to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fleet.profiling import sizing
from fleet.run.ranks import known_sizes
from fleet.run.ranks.known_sizes import KnownSizes
from fleet.run.ranks.rank import Rank
from fleet.run.ranks.runtime import Runtime
from fleet.spec import EnsembleSpec


@pytest.fixture
def runtime_of(rehearsed: Callable[..., Rank], spec: Callable[..., EnsembleSpec]) -> Callable[..., Runtime]:
    """The run's runtime with a job more, called `late`, with these keys."""
    rank = rehearsed()

    def with_late(**keys: Any) -> Runtime:
        return rank.runtime.with_job(spec({"name": "late", **keys}).jobs[0])

    return with_late


def sgd(**arguments: float) -> dict[str, Any]:
    return {"name": "SGD", "arguments": arguments}


def test_rates_change_no_size_and_all_else_may(
    runtime_of: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def counted(*known: Any) -> sizing.Size:
        nonlocal asked
        asked += 1
        return sizing.size_of(*known)

    monkeypatch.setattr(known_sizes, "size_of", counted)
    sizes, times = KnownSizes(), []
    for keys in (sgd(lr=0.1), sgd(lr=0.2), sgd(lr=0.1, weight_decay=0.3), sgd(lr=0.1, momentum=0.5)):
        runtime = runtime_of(optimizer=keys)
        assert sizes.of(runtime, "late") == sizing.size_of(runtime.task("late"), runtime.data_of("late").layout)
        times.append(asked)
    assert times == [1, 1, 1, 2]


def test_what_nothing_can_be_made_of_is_refused_all_the_same(runtime_of: Callable[..., Runtime]) -> None:
    sizes = KnownSizes()
    sizes.of(runtime_of(optimizer=sgd(lr=0.1)), "late")
    with pytest.raises(ValueError, match="learning rate"):
        sizes.of(runtime_of(optimizer=sgd(lr=-0.1)), "late")
