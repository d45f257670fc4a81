"""A gang is of one kind: the preferred one, or any that is large enough."""

import pytest

from fleet.scheduling.model.cluster import Cluster, FreeDevices
from fleet.scheduling.policies.fifo import hopeless_gang, take_gang
from tests.scheduling.support.kinds_of_device import MIXED, job


@pytest.mark.parametrize(
    ("gang", "kind", "mixed", "cluster", "expected"),
    [
        (2, "slow", False, MIXED, (4, 5)),
        (4, "slow", True, MIXED, (4, 5, 6, 7)),
        (2, "", False, MIXED, (0, 1)),
        (2, "elsewhere", False, MIXED, (0, 1)),
        (5, "fast", False, MIXED, None),
        (5, "fast", True, MIXED, (0, 1, 2, 3, 4)),
        (5, "fast", False, Cluster((4, 4)), (0, 1, 2, 3, 4)),
    ],
)
def test_who_gets_what(gang: int, kind: str, mixed: bool, cluster: Cluster, expected: tuple[int, ...] | None) -> None:
    asking = job("a", gang=gang, kind=kind, mixed_kinds=mixed)
    assert take_gang(asking, cluster, FreeDevices(cluster)) == expected
    assert (hopeless_gang(asking, cluster) is None) == (expected is not None)


def test_a_gang_waits_for_its_kind() -> None:
    free = FreeDevices(MIXED, [3, 4, 5])
    assert take_gang(job("a", gang=2, kind="fast"), MIXED, free) is None and free.devices() == [3, 4, 5]
    assert take_gang(job("a", gang=2, kind="", mixed_kinds=False), MIXED, free) == (4, 5)


def test_why_a_gang_can_never_be_free() -> None:
    assert hopeless_gang(job("a", gang=9), MIXED) == "it asks for 9 devices; the cluster has 8"
    told = hopeless_gang(job("a", gang=5, mixed_kinds=False), MIXED)
    assert told == "it asks for 5 devices of one kind, fast; the cluster has 4 fast, 4 slow"
    told = hopeless_gang(job("a", gang=5, mixed_kinds=False, kind=""), MIXED)
    assert told == "it asks for 5 devices of one kind; the cluster has 4 fast, 4 slow"
