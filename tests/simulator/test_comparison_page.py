"""The page of a comparison: whole, self-contained, escaped, small however many jobs there were."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from fleet.commands.simulated_report import POINTS, columns, comparison_page, rows
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.comparing.compared_policies import Comparison, compare
from fleet.simulator.comparing.settings import Case, cases_of
from fleet.simulator.comparing.workload import Workload, synthetic_of
from fleet.simulator.outcome import SimulationOutcome
from tests.simulator.support import trace_files
from tests.simulator.support.trace_files import written

HOSTILE = '<script>alert(1)</script>"><img src="http://evil.example/x">'


@pytest.fixture
def drawn(tmp_path: Path) -> Workload:
    written(tmp_path, trace_files.RATES, "rates/bert.csv")
    return Workload(synthetic=synthetic_of("jobs=400,gap=2,duration=20"), rates=tmp_path / "rates")


def compared(drawn: Workload, *cases: Case) -> tuple[Comparison, list[SimulationOutcome]]:
    comparison = Comparison(drawn, Cluster((4,) * 20), cases)
    return comparison, compare(comparison)


def figures(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_every_figure_is_one_that_plotly_takes(drawn: Workload) -> None:
    page = comparison_page(*compared(drawn, Case("fifo"), Case("fifo", {"backfill": True})))
    made = figures(page)
    assert list(made) == ["utilisation", "efficiency", "queue", "completion", "deadlines", "idle"]
    for name, figure in made.items():
        assert len(figure["data"]) == (3 if name == "deadlines" else 2), name
        assert all(len(line["x"]) <= POINTS for line in figure["data"])
        plain = json.loads(re.sub(r'"@\w+"', '"#123456"', json.dumps(figure)))
        plotly.graph_objects.Figure(plain)


def test_nothing_is_fetched_and_names_are_text(drawn: Workload) -> None:
    comparison, outcomes = compared(drawn, Case("fifo"))
    page = comparison_page(comparison, outcomes, [f"a note {HOSTILE}"])
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "<img" not in own and "alert(1)</script>" not in own and "&lt;script&gt;" in own
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", own)


def test_the_lines_say_what_the_figures_say(drawn: Workload) -> None:
    comparison, (outcome,) = compared(drawn, Case("fifo"))
    made = figures(comparison_page(comparison, [outcome]))
    for name, figure in (("utilisation", outcome.utilisation), ("efficiency", outcome.cluster_efficiency)):
        line = made[name]["data"][0]["y"]
        assert sum(line) / len(line) == pytest.approx(figure, rel=1e-3)
    parts = {bar["name"]: bar["x"][0] for bar in made["deadlines"]["data"]}
    assert parts["met"] == pytest.approx(outcome.deadline_ratio) and sum(parts.values()) == pytest.approx(1)


def test_seeds_of_a_policy_are_one_column(drawn: Workload) -> None:
    comparison, outcomes = compared(drawn, *cases_of(["fifo", "fifo:backfill=true"], [], [1, 2, 3]))
    columned = columns(comparison.cases, outcomes)
    assert [(column.label, len(column.outcomes)) for column in columned] == [("fifo", 3), ("fifo backfill=true", 3)]
    table = dict(rows(columned))
    assert table["jobs"] == ["400", "400"]
    jct = sorted(outcome.summary()["avg_jct"] for outcome in outcomes[:3])
    assert re.fullmatch(r".+ \(.+ to .+\)", table["mean completion time"][0]) and jct[0] < jct[2]
    page = comparison_page(comparison, outcomes)
    assert "Medians of 3 seeds" in page and len(figures(page)["queue"]["data"]) == 2


def test_a_trace_of_which_nothing_is_done_still_has_a_page(tmp_path: Path) -> None:
    file = written(tmp_path, "name,arrival,devices,duration\na,0,99,5\n")
    comparison = Comparison(Workload(trace=file), Cluster((4,)), (Case("fifo"),))
    page = comparison_page(comparison, compare(comparison))
    assert figures(page) == {} and "trace.csv" in page
