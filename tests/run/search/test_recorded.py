"""A search is rebuilt from its run's journal alone, and says so where it would decide otherwise now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fleet.run.bad_input import BadInput
from fleet.run.search.recorded import recorded
from fleet.spec import EnsembleSpec, load
from tests.run.support.ensembles import Ensemble, RunFolder


@pytest.fixture(scope="module")
def spec(searching: Ensemble) -> EnsembleSpec:
    return load(searching.spec)


def unknown(trial: int, values: Mapping[str, Any]) -> int:
    raise AssertionError("the journal tells the cost of each trial")


def test_a_journal_tells_all_of_a_search(spec: EnsembleSpec, on_one_device: RunFolder) -> None:
    found = recorded(spec, unknown, on_one_device.journal)
    assert found.search.is_over and found.search.digest() == on_one_device.summary["search"]["decisions"]
    assert found.written == len(on_one_device.events("search")) == len(found.search.decisions)
    stopped = {name for name, job in on_one_device.summary["jobs"].items() if job["status"] == "stopped"}
    assert found.pruned == stopped and len(found.failed) == 2


def test_what_was_not_written_in_time_is_decided_again(spec: EnsembleSpec, on_one_device: RunFolder) -> None:
    lines = on_one_device.journal
    last = max(number for number, line in enumerate(lines) if line["event"] == "result")
    costs = {line["trial"]: line["cost"] for line in on_one_device.events("search") if line["kind"] == "start"}
    found = recorded(spec, lambda trial, values: costs[trial], lines[: last + 1])
    assert found.written < len(found.search.decisions)
    assert found.search.digest() == on_one_device.summary["search"]["decisions"]


def test_another_decision_than_before_is_told(spec: EnsembleSpec, on_one_device: RunFolder) -> None:
    lines = on_one_device.journal
    number = next(i for i, line in enumerate(lines) if line["event"] == "search" and line["kind"] == "resume")
    lines[number] = {**lines[number], "trial": lines[number]["trial"] + 1}
    with pytest.raises(BadInput, match="the search decides otherwise than the journal says, from decision"):
        recorded(spec, unknown, lines)
