"""The end of a preprocessor in a benchmark or a test."""

from __future__ import annotations

import time
from collections.abc import Iterable

from preprocess.making.preprocessor import Preprocessor


def close_all(preprocessor: Preprocessor, lanes: Iterable[int], patience: float) -> None:
    """Close lanes, and wait until both sides of each have said so."""
    for lane in lanes:
        preprocessor.close_lane(lane)
    until = time.monotonic() + patience
    while not preprocessor.rests:
        if time.monotonic() > until:
            raise TimeoutError(f"preprocessor {preprocessor.index} waits for the end of a lane")
        preprocessor.wait(0.05)
        preprocessor.step()
