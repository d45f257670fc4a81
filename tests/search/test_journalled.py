"""What is read of a search's journal."""

from __future__ import annotations

from typing import Any

from fleet.search.journalled import journalled
from tests.journals import as_events
from tests.search.support.curves import cost, value
from tests.search.support.journals import Line, searched_lines
from tests.search.support.sections import spec_of


def ahead(job: str, trial: int) -> Line:
    return {"event": "ahead", "t": 0.0, "job": job, "trial": trial, "start": 0, "end": 1, "epoch": 1}


def test_what_a_trial_trained_before_it_began_is_its_own() -> None:
    """The first epochs of some, or their failures, come before the search begins them; one never begins."""
    halving: dict[str, Any] = {"name": "halving", "eta": 3, "rungs": [1, 3, 9]}
    lines = searched_lines(spec_of(stopping=halving), value, cost)
    early = list[Line]()
    for line in lines:
        if line["event"] == "search" and line["kind"] == "start":
            first = [each for each in lines if each.get("job") == line["job"] and each.get("epoch") == 1]
            mine = [each for each in first if each["event"] in ("epoch", "result", "failed")]
            early += [ahead(line["job"], line["trial"]), *mine] if line["trial"] % 2 else []
        early += [line] if not any(line is each for each in early) else []
    assert early != lines
    early.insert(-1, ahead("n-999", 999))
    early.insert(-1, {"event": "result", "t": 0.0, "job": "n-999", "trial": 999, "epoch": 1, "value": 0.0})
    plain, found = journalled(as_events(lines)), journalled(as_events(early))
    assert found.trials == plain.trials and found.decisions == plain.decisions and found.best() == plain.best()
    assert set(found.results) == set(plain.results) and len(found.results) == len(plain.results)
