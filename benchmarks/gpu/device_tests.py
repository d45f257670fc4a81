"""The tests that want a GPU, as far as the time goes."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter

from benchmarks.gpu.part import GpuPart, Late, last_words

_TOLD = re.compile(r"^\[gw\d+\].*? (PASSED|FAILED|SKIPPED|ERROR) tests/", re.MULTILINE)
_SELECTED = re.compile(r"^\d+ workers? \[(\d+) items?\]", re.MULTILINE)
_MOST_AT_A_TIME = 6
"""Tests that run side by side: most of their time goes into processes that start."""


def measure(part: GpuPart) -> None:
    """Run them, some at a time. TimeoutError if some find no time."""
    words = ["-m", "pytest", "-m", "gpu", "tests/gpu", "-vv", "-p", "no:cacheprovider", "--tb=short"]
    at_a_time = min(_MOST_AT_A_TIME, max(1, (os.cpu_count() or 1) // 2))
    words += ["-n", str(at_a_time), f"--session-timeout={part.left() * 0.9:.0f}"]
    words += [] if not part.given.small else ["--device", "rig"]
    try:
        _, output = part.command([sys.executable, *words])
    except Late as late:
        output = late.output
    seen = Counter(_TOLD.findall(output))
    found = _SELECTED.search(output)
    selected = int(found[1]) if found else 0
    failed = seen["FAILED"] + seen["ERROR"]
    part.bar("tests of tests/gpu that fail", failed, "0", failed == 0)
    part.bar("tests of tests/gpu that pass", seen["PASSED"], ">= 1", seen["PASSED"] >= 1)
    part.table("tests/gpu", ["selected", *sorted(seen)], [[selected, *(seen[name] for name in sorted(seen))]])
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            part.note(line[:300])
    if not selected:
        raise RuntimeError(f"pytest has collected nothing: {last_words(output)}")
    if sum(seen.values()) < selected:
        raise TimeoutError(f"{selected - sum(seen.values())} of {selected} tests found no time")
