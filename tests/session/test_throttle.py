"""What takes long is done seldom; what is quick, whenever it is asked for."""

from __future__ import annotations

from fleet.session.running import Throttle


def calls(seconds: float, every: float, until: float) -> int:
    """How often an action of so many seconds is done that is asked for again and again."""
    now, done = 0.0, 0

    def action() -> None:
        nonlocal now, done
        now, done = now + seconds, done + 1

    seldom = Throttle(action, part=0.1, clock=lambda: now)
    while now < until:
        seldom()
        now += every
    return done


def test_it_takes_no_more_than_its_part_of_the_time() -> None:
    assert calls(seconds=1.0, every=0.01, until=110.0) == 10
    assert calls(seconds=0.001, every=1.0, until=10.0) == 10
