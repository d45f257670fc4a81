"""Each piece of a reservation has nodes of its own, by hand and for whatever comes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling.reservations.placed_guarantees import Placed, PlacedGuarantees, Places
from fleet.scheduling.reservations.reservation import Demand, Reservation, SpeedLevels
from tests.scheduling.support.demands import LINEAR, linear

TWO = {0: 4, 1: 4}


def guarantees(*demands: Demand, known: Mapping[str, Placed] | None = None, **more: object) -> PlacedGuarantees:
    settings: dict[str, object] = {"running": {}, "now": 0.0, "sizes": TWO, "whole": 4, "pinned": True, **more}
    return PlacedGuarantees(demands, known or {}, **settings)  # type: ignore[arg-type]


def used(places: Mapping[str, Placed], node: int, time: float) -> int:
    """Devices of a node that are taken at a time."""
    return sum(
        count // len(nodes)
        for placed in places.values()
        for (begin, end, count), nodes in zip(*placed)
        if begin <= time < end and node in nodes
    )


def test_small_ones_share_a_node_so_that_another_stays_whole() -> None:
    places = Places(TWO, 4, 0.0)
    assert places.place({"a": ((0.0, 9.0, 2),), "b": ((1.0, 9.0, 2),), "c": ((5.0, 6.0, 4),)}, {})
    assert places.of["a"].nodes == places.of["b"].nodes != places.of["c"].nodes


def test_who_trains_stays_even_if_another_then_has_no_place() -> None:
    wanted: dict[str, Reservation] = {"a": ((0.0, 9.0, 2),), "b": ((0.0, 9.0, 2),), "c": ((5.0, 6.0, 4),)}
    assert not Places(TWO, 4, 0.0).place(wanted, {"a": (0,), "b": (1,)})
    assert Places(TWO, 4, 0.0).place(wanted, {"a": (0,), "b": (0,)})


def test_several_whole_nodes_are_taken_and_given_back() -> None:
    places = Places(TWO, 4, 0.0)
    places.put("a", Placed(((0.0, 2.0, 8),), ((0, 1),)))
    assert not list(places.room(1.0, 3.0, 1)) and list(places.room(2.0, 3.0, 8)) == [(0, 1)]
    places.lift("a")
    assert list(places.room(1.0, 3.0, 1)) == [(0,), (1,)]


def test_a_node_that_lost_a_device_is_no_whole_one() -> None:
    places = Places({0: 4, 1: 3}, 4, 0.0)
    assert list(places.room(0.0, 1.0, 4)) == [(0,)] and not list(places.room(0.0, 1.0, 8))
    assert list(places.room(0.0, 1.0, 2)) == [(1,), (0,)], "where it leaves the fewest"


def test_what_is_free_by_number_alone_is_not_promised() -> None:
    # One device of each node is taken all the time, so six are free by number, but no four on a node.
    known = {name: Placed(((0.0, 10.0, 1),), ((node,),)) for node, name in enumerate("ab")}
    kept = [Demand(name, 9.0, 10.1, linear(1), 0.5, held=1) for name in "ab"]
    levels = SpeedLevels.among(LINEAR.counts[1:][[0, 1, 3]], LINEAR.rates[1:][[0, 1, 3]])
    by_number = guarantees(*kept, known=known, pinned=False)
    assert by_number.admit(Demand("c", 35.0, 10.0, levels, 0.5)), "four devices are free"
    on_nodes = guarantees(*kept, known=known, running={"a": (0,), "b": (1,)})
    assert not on_nodes.admit(Demand("c", 35.0, 10.0, levels, 0.5)), "but not on one node"
    assert on_nodes.admit(Demand("c", 17.0, 10.0, levels, 0.5)), "two are"
    assert set(on_nodes.reservations) == set(on_nodes.places) == {"a", "b", "c"}


def test_jobs_that_have_not_begun_are_placed_anew_for_a_newcomer() -> None:
    known = {name: Placed(((2.0, 10.0, 2),), ((node,),)) for node, name in enumerate("ab")}
    kept = [Demand(name, 15.0, 10.1, linear(2), 0.5) for name in "ab"]
    levels = SpeedLevels.among(LINEAR.counts[[4]], LINEAR.rates[[4]])
    placed = guarantees(*kept, known=known)
    assert placed.admit(Demand("c", 30.0, 10.0, levels, 0.5))
    assert placed.places["a"].nodes == placed.places["b"].nodes != placed.places["c"].nodes


def test_what_a_lost_node_held_is_given_up_and_the_rest_kept() -> None:
    known = {name: Placed(((0.0, 10.0, 4),), ((node,),)) for node, name in enumerate("ab")}
    demands = [replace(Demand(name, 39.0, 10.0, LINEAR), held=4) for name in "ab"]
    left = guarantees(*demands, known=known, running={"a": (0,), "b": (1,)}, sizes={0: 4, 1: 0})
    assert set(left.reservations) == set(left.places) == {"a"}


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4, 8]), st.floats(0, 9), st.floats(0.1, 5)), max_size=12),
    st.integers(1, 4),
)
@settings(max_examples=200)
def test_no_node_is_ever_promised_twice(pieces: list[tuple[int, float, float]], nodes: int) -> None:
    places = Places(dict.fromkeys(range(nodes), 4), 4, 0.0)
    for number, (count, begin, seconds) in enumerate(pieces):
        before = dict(places.of)
        if not places.place({str(number): ((begin, begin + seconds, count),)}, {}):
            assert places.of == before, "who has no place takes none"
    times = [begin for placed in places.of.values() for begin, _, _ in placed.reservation]
    assert all(used(places.of, node, time) <= 4 for node in range(nodes) for time in times)


def test_homes_are_where_a_reservation_can_lie_from_now_on() -> None:
    known = {
        "a": Placed(((3.0, 9.0, 2),), ((0,),)),
        "b": Placed(((0.0, 9.0, 4),), ((1,),)),
        "c": Placed(((0.0, 2.0, 4),), ((0,),)),
    }
    demands = [Demand("a", 11.0, 9.0, LINEAR), Demand("b", 35.0, 9.0, LINEAR), Demand("c", 7.0, 9.0, LINEAR)]
    placed = guarantees(*demands, known=known)
    assert dict(placed.places) == known
    assert list(placed.homes("a", 2)) == [], "its node is taken until 2"
    assert list(placed.homes("a", 4)) == [] and list(placed.homes("b", 4)) == [(1,)]
    demands = [Demand("a", 11.0, 9.0, LINEAR), Demand("b", 27.0, 9.0, LINEAR, held=4)]
    later = guarantees(*demands, known={name: known[name] for name in "ab"}, now=2.0, running={"b": (1,)})
    assert list(later.homes("a", 2)) == [(0,)] and later.settle("a", (0,)) == 9.0


def test_what_a_job_has_is_held_where_it_is_or_not_at_all() -> None:
    known = {"a": Placed(((3.0, 9.0, 2),), ((0,),)), "b": Placed(((0.0, 9.0, 2),), ((1,),))}
    demands = [Demand("a", 11.0, 9.0, LINEAR, held=4), Demand("b", 17.0, 9.0, LINEAR, held=2)]
    placed = guarantees(*demands, known=known, running={"a": (0,), "b": (1,)})
    assert not placed.hold("a", 4, (1,)) and placed.places["a"] == known["a"], "the other has two of these"
    assert placed.hold("a", 4, (0,)) and placed.reservations["a"] == placed.places["a"].reservation
    assert placed.places["a"].nodes == ((0,),) and placed.reservations["a"][0][2] == 4
