"""Searches: what it costs that they are the same on any number of devices."""

from __future__ import annotations

from benchmarks.measured_parts import Figures, Part, measured
from benchmarks.searched import coordinating, deciding, prefetching, virtual_time
from benchmarks.searched.peers import measuring as peers

PARTS: dict[str, Part] = {
    "virtual_time": virtual_time.measure,
    "deciding": deciding.measure,
    "coordinating": coordinating.measure,
    "prefetch": prefetching.measure,
    "peers": peers.measure,
}
ASKED: dict[str, Part] = {"peers_augmented": peers.measure_augmented}
"""Those that are measured only where they are named: together they would take too long."""


def main(repetitions: int = 0, parts: str = "") -> Figures:
    """Measure the parts that are named, with commas between; all of PARTS by default."""
    return measured("search", PARTS, repetitions, parts, ASKED)
