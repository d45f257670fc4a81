"""A search is rebuilt from its run's journal alone, and says so where it would decide otherwise now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.search.journalled import journalled, section_of
from fleet.session.chosen_workers import with_known_rule
from fleet.session.search.recorded import recorded
from fleet.spec import EnsembleSpec, load, results_mapping
from fleet.workers.agreement import BadInput
from tests.journals import as_events
from tests.live.support.ensembles import Ensemble, RunFolder


@pytest.fixture(scope="module")
def spec(searching: Ensemble) -> EnsembleSpec:
    return load(searching.spec)


def unknown(trial: int, values: Mapping[str, Any]) -> int:
    raise AssertionError("the journal tells the cost of each trial")


def test_a_journal_tells_all_of_a_search(spec: EnsembleSpec, on_one_device: RunFolder) -> None:
    found = recorded(spec, unknown, as_events(on_one_device.journal))
    assert found.search.is_over and found.search.digest() == on_one_device.summary["search"]["decisions"]
    assert found.written == len(on_one_device.events("search")) == len(found.search.decisions)
    stopped = {name for name, job in on_one_device.summary["jobs"].items() if job["status"] == "stopped"}
    assert found.pruned == stopped and len(found.failed) == 2


def test_what_was_not_written_in_time_is_decided_again(spec: EnsembleSpec, on_one_device: RunFolder) -> None:
    lines = on_one_device.journal
    last = max(number for number, line in enumerate(lines) if line["event"] == "result")
    costs = {line["trial"]: line["cost"] for line in on_one_device.events("search") if line["kind"] == "start"}
    found = recorded(spec, lambda trial, values: costs[trial], as_events(lines[: last + 1]))
    assert found.written < len(found.search.decisions)
    assert found.search.digest() == on_one_device.summary["search"]["decisions"]


def test_another_decision_than_before_is_told(spec: EnsembleSpec, on_one_device: RunFolder) -> None:
    lines = on_one_device.journal
    number = next(i for i, line in enumerate(lines) if line["event"] == "search" and line["kind"] == "resume")
    lines[number] = {**lines[number], "trial": lines[number]["trial"] + 1}
    with pytest.raises(BadInput, match="the search decides otherwise than the journal says, from decision"):
        recorded(spec, unknown, as_events(lines))


def halving(spec: EnsembleSpec, **keys: float) -> EnsembleSpec:
    assert spec.search is not None
    search = spec.search.model_dump(exclude_unset=True) | {"stopping": {"name": "halving", "rungs": [1, 3], **keys}}
    return spec.model_validate(spec.model_dump(exclude_unset=True) | {"search": search})


@pytest.mark.parametrize("begun_with", [{"confidence": 0.0}, {}])
def test_a_run_of_before_there_was_a_confidence_halves_as_it_did(
    spec: EnsembleSpec, on_one_device: RunFolder, tmp_path: Path, begun_with: dict[str, float]
) -> None:
    kept, asked = results_mapping(halving(spec, **begun_with)), halving(spec)
    (tmp_path / "spec.json").write_text(json.dumps(kept))
    (tmp_path / "journal.jsonl").write_text("")
    known, section = with_known_rule(asked, tmp_path), section_of(kept, journalled(as_events(on_one_device.journal)))
    expected = 0.0 if begun_with else 0.99
    assert section is not None and known.search is not None
    assert known.search.stopping.confidence == section.stopping.confidence == expected
    assert results_mapping(known) == kept and with_known_rule(asked, tmp_path / "new") == asked
    assert ("confidence" in kept["search"]["stopping"]) == (not begun_with)


RULES = [
    {"name": "none"},
    {"name": "median"},
    {"name": "hyperband", "rungs": [1, 3]},
    {"name": "halving", "rungs": [1, 3], "synchronous": True},
]


@pytest.mark.parametrize("stopping", RULES, ids=lambda each: each["name"])
def test_a_search_that_has_no_confidence_goes_on_as_it_is(
    spec: EnsembleSpec, tmp_path: Path, stopping: dict[str, Any]
) -> None:
    assert spec.search is not None
    search = spec.search.model_dump(exclude_unset=True) | {"stopping": stopping}
    asked = spec.model_validate(spec.model_dump(exclude_unset=True) | {"search": search})
    (tmp_path / "spec.json").write_text(json.dumps(results_mapping(asked)))
    (tmp_path / "journal.jsonl").write_text("")
    assert with_known_rule(asked, tmp_path) is asked
