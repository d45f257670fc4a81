"""Tags of messages stay below what the MPI at hand has."""

from __future__ import annotations

from itertools import pairwise

import pytest
from mpi4py import MPI

from benchmarks.scaled.played_ranks import cluster_of
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_COORDINATOR
from fleet.session import rank_messages as broadcast
from fleet.workers.agreement import BadInput


def made(nodes: int) -> broadcast.Broadcast:
    return broadcast.Broadcast(Mailbox(MPI.COMM_SELF, TO_COORDINATOR), cluster_of(nodes), lambda: None)


def test_tags_of_groups_come_again_before_mpi_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broadcast.largest_tag() >= 32767
    monkeypatch.setattr(broadcast, "largest_tag", lambda: 1011)
    one = made(2)
    found = [one.next_tag() for _ in range(9)]
    assert max(found) + 2 * broadcast.TAG_STEP <= 1011 and found[0] in found[1:], "a move takes as many tags again"
    assert all(abs(late - early) >= broadcast.TAG_STEP for early, late in pairwise(found))


def test_lanes_that_no_tags_are_left_for_are_refused_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "largest_tag", lambda: 1_048_575)  # Intel MPI's
    made(1250).check_lanes(200)
    made(1).check_lanes(10**9)
    with pytest.raises(BadInput, match=r"3,750,000 tags .* has 1,048,575; start at most 349 preprocessors"):
        made(1250).check_lanes(1000)
