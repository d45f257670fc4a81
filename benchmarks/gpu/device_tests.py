"""The tests that want a GPU, as far as the time goes."""

from __future__ import annotations

import re
import sys
from collections import Counter

from benchmarks.gpu.part import GpuPart, Late, last_words

_TOLD = re.compile(r"^(?:FAILED|ERROR)?\s*tests/\S+.*?(PASSED|FAILED|SKIPPED|ERROR)", re.MULTILINE)
_SELECTED = re.compile(r"collected (\d+) items?(?:.* (\d+) selected)?")


def measure(part: GpuPart) -> None:
    """Run them one after another. TimeoutError if some find no time."""
    words = ["-m", "pytest", "-m", "gpu", "tests/gpu", "-vv", "-p", "no:cacheprovider", "-p", "no:xdist"]
    words += ["--tb=short", f"--session-timeout={part.left() * 0.9:.0f}"]
    words += [] if not part.given.small else ["--device", "rig"]
    try:
        _, output = part.command([sys.executable, *words])
    except Late as late:
        output = late.output
    seen = Counter(_TOLD.findall(output.partition("short test summary")[0]))
    found = _SELECTED.search(output)
    selected = int(found[2] or found[1]) if found else 0
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
