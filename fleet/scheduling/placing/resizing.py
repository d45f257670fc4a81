"""From how many devices each job has to which: who keeps its number keeps its place."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.scheduling.model.state import State
from fleet.scheduling.placing.staying import staying


def resized(counts: Mapping[str, int], state: State) -> dict[str, tuple[int, ...]]:
    """Job -> its devices: those that it has where their number is right, else on as few nodes as possible.

    Args:
        counts: job -> how many it should have, together no more than are available; 0: none.
        state: who has what now.
    """
    placed, free = staying(counts, state)
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count and name not in placed:
            taken = free.take(count)
            if taken is None:
                raise ValueError(f"job {name} should have {count} devices, but {len(free)} are left")
            placed[name] = taken
    return placed
