"""Jobs that need so much by then."""

from __future__ import annotations

from hypothesis import strategies as st

from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.reservations.reservation import Demand, SpeedLevels


def linear(most: int) -> SpeedLevels:
    """One sample a second on each device, up to `most`."""
    return SpeedLevels(RateCurve({count: float(count) for count in range(1, most + 1)}, 4, limit=most), most)


LINEAR = linear(4)
HALF = SpeedLevels(RateCurve({1: 1.0, 2: 1.5}, 4, limit=2), 2)
"""The curve of ElasticFlow's Figure 3: one unit with one worker, 1.5 with two."""


@st.composite
def levels(draw: st.DrawFn, most: int = 8) -> SpeedLevels:
    """Any curve: concave, or falling and rising as it likes."""
    measured = draw(st.lists(st.floats(0.2, 8.0), min_size=1, max_size=most))
    if draw(st.booleans()):
        measured = [sum(sorted(measured, reverse=True)[: count + 1]) for count in range(len(measured))]
    return SpeedLevels(RateCurve(dict(enumerate(measured, 1)), 4, limit=most), most)


@st.composite
def demands(draw: st.DrawFn, most: int = 8, restarts: tuple[float, ...] = (0.0, 0.5)) -> list[Demand]:
    """Some jobs at second 0, each with a deadline that it could meet with all devices that it can use."""
    restart = draw(st.sampled_from(restarts))
    made = []
    for index in range(draw(st.integers(1, most))):
        speed, seconds = draw(levels()), draw(st.floats(0.5, 20.0))
        deadline = restart + seconds * draw(st.floats(1.01, 6.0))
        made.append(Demand(f"job-{index}", seconds * speed.top_rate, deadline, speed, restart))
    return made
