"""Virtual workers are dealt over unlike devices so that the slowest of all is done as soon as can be."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.easyscale.kind_curves import deal, is_worth_dealing_anew, turns


def best_of_all(workers: int, speeds: list[float]) -> float:
    """The least time of a step, over all ways to deal."""
    choices = product(range(1, workers + 1), repeat=len(speeds))
    return min(turns(shares, speeds) for shares in choices if sum(shares) == workers)


@given(st.data())
def test_no_other_way_to_deal_is_faster(data: st.DataObject) -> None:
    speeds = data.draw(st.lists(st.floats(0.1, 10), min_size=1, max_size=4))
    workers = data.draw(st.integers(len(speeds), 8))
    shares = deal(workers, speeds)
    assert len(shares) == len(speeds) and sum(shares) == workers and min(shares) >= 1
    assert turns(shares, speeds) == best_of_all(workers, speeds)


@given(st.integers(1, 30), st.integers(1, 30))
def test_alike_devices_have_balanced_shares_the_larger_first(devices: int, more: int) -> None:
    shares = deal(devices + more, [3.0] * devices)
    assert max(shares) - min(shares) <= 1 and list(shares) == sorted(shares, reverse=True)


def test_by_hand() -> None:
    assert deal(8, [1.0, 0.5, 0.5]) == (4, 2, 2)
    assert deal(6, [2.0, 1.0]) == (4, 2)
    assert deal(3, [9.0, 1.0, 1.0]) == (1, 1, 1), "each device has one at least"


@pytest.mark.parametrize(("workers", "speeds"), [(2, [1.0, 1.0, 1.0]), (2, []), (2, [1.0, 0.0])])
def test_what_cannot_be_dealt(workers: int, speeds: list[float]) -> None:
    with pytest.raises(ValueError, match="give each device one at least, and a speed above 0"):
        deal(workers, speeds)


def test_it_pays_to_deal_anew_where_steps_become_so_much_faster() -> None:
    assert is_worth_dealing_anew((3, 3, 2), [1.0, 0.5, 0.5])
    assert not is_worth_dealing_anew((4, 2, 2), [1.0, 0.5, 0.5])
    assert not is_worth_dealing_anew((4, 2, 2), [1.0, 0.51, 0.49]), "nobody else could do it sooner"
