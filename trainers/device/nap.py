"""Pauses of who looks again and again whether something has come, and would keep a processor busy otherwise."""

from __future__ import annotations

import os
import time

LONGEST_NAP = 200e-6


def nap(elapsed: float, eager: float = 50e-6, longest: float = LONGEST_NAP) -> None:
    """Let others have the processor between two looks, `elapsed` seconds after the first; the later, the longer."""
    if elapsed > eager:
        time.sleep(min(elapsed / 4, longest))
    else:
        os.sched_yield()
