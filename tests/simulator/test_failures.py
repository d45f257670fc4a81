"""Failures of nodes: from a file, or drawn."""

import math
from pathlib import Path

import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.comparing.workload import DrawnFailures, failures_of, read_failures
from fleet.simulator.simulation import NodeFailure
from fleet.simulator.traces import JobColumns, Trace, TraceError
from tests.simulator.support.trace_files import written

CLUSTER = Cluster((2,) * 20)
TRACE = Trace.of(JobColumns.of(["a", "b"], [0.0, 100.0], [1, 1], duration=[1.0, 1.0]))


def test_failures_are_read_by_time(tmp_path: Path) -> None:
    file = written(tmp_path, "node,time,until\n3,50,60\n0,7.5,\n")
    assert read_failures(file, CLUSTER) == (NodeFailure(7.5, 0, math.inf), NodeFailure(50, 3, 60))


def test_every_bad_failure_is_in_one_report(tmp_path: Path) -> None:
    file = written(tmp_path, "time,node,until\n-1,0,5\n1,20,5\n9,1,5\nnan,1,\n1,1.5,\n")
    with pytest.raises(TraceError) as caught:
        read_failures(file, CLUSTER)
    assert [(p.line, p.column) for p in caught.value.problems] == [
        (2, "time"), (3, "node"), (4, "until"), (5, "time"), (6, "node"),
    ]  # fmt: skip
    with pytest.raises(TraceError, match="node"):
        read_failures(written(tmp_path, "time,until\n1,2\n"), CLUSTER)


def test_drawn_failures_are_those_of_a_seed() -> None:
    drawn = DrawnFailures(mean=1000, repair=50, until=100_000)
    found = drawn.draw(CLUSTER, TRACE, 1)
    assert found == drawn.draw(CLUSTER, TRACE, 1) != drawn.draw(CLUSTER, TRACE, 2)
    assert [failure.time for failure in found] == sorted(failure.time for failure in found)
    assert max(failure.time for failure in found) < 100_000
    for node in range(CLUSTER.nodes):
        mine = [failure for failure in found if failure.node == node]
        assert all(a.until <= b.time for a, b in zip(mine, mine[1:])), "no node fails while it is repaired"
    expected = CLUSTER.nodes * 100_000 / 1050
    assert abs(len(found) - expected) < 5 * math.sqrt(expected)


def test_nothing_fails_a_month_after_the_last_arrival() -> None:
    found = DrawnFailures(mean=86400).draw(CLUSTER, TRACE, 0)
    assert found and max(failure.time for failure in found) < 100 + 30 * 86400


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mean=0", "mean is 0.0 s; it must be above 0"),
        ("repair=5", "the mean seconds between two failures of a node are missing"),
        ("mean=5,colour=3", "'colour' is not known"),
        ("mean=soon", "mean is 'soon'; it must be a number"),
        ("mean=5,mean=6", "mean is given twice"),
        ("mean=5,repair", "is no NAME=VALUE"),
    ],
)
def test_what_cannot_be_drawn_is_named(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        failures_of(text)


def test_too_many_failures_are_refused() -> None:
    with pytest.raises(ValueError, match="name a larger"):
        DrawnFailures(mean=0.001, repair=0.001).draw(CLUSTER, TRACE, 0)


def test_a_text_without_an_equals_sign_is_a_file() -> None:
    assert failures_of("nodes.csv") == Path("nodes.csv")
    assert failures_of("mean=1e6, repair=60") == DrawnFailures(1e6, 60)
