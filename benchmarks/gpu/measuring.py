"""A part of gpu_check is measured in a process of its own, which is ended when its time is over.

python -m benchmarks.gpu.measuring NAME FILE GIVEN    FILE holds what the part has found so far, GIVEN is JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.part import ROOT, Given, GpuPart, Skipped, in_a_line, last_words
from benchmarks.rank_processes import end

MODULES: Mapping[str, str] = {
    "doctor": "doctor",
    "digits": "digits",
    "tests": "device_tests",
    "steps": "step_times",
    "figure-12": "worker_counts",
    "figure-13": "worker_turns",
    "members": "members",
    "several": "several_devices",
}
"""The parts, in the order in which they run, and where they are."""

SETTINGS = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Variables of a part's process: as a trainer has them, and messages of the host stay on this machine."""


def measured(name: str, given: Given, log: Path) -> dict[str, Any]:
    """Return what a part finds within the given time: status, words, seconds, bars, tables, notes.

    log: takes what the part and its commands write.
    """
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder, open(log, "w") as told:
        path = Path(folder) / "found.json"
        words = [sys.executable, "-m", "benchmarks.gpu.measuring", name, str(path), json.dumps(asdict(given))]
        environment = {**SETTINGS, **os.environ}
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=told, stderr=subprocess.STDOUT)
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(given.seconds)
            code = process.poll()
        finally:
            end(process)
        found: dict[str, Any] = {"status": "out of time", "words": "it was ended before it began", "bars": []}
        found |= {"tables": [], "notes": [], **(json.loads(path.read_text()) if path.exists() else {})}
    if code:
        found |= {"status": "failed", "words": f"its process ended with code {code}: {last_words(log.read_text())}"}
    return {**found, "seconds": round(time.monotonic() - begin, 1)}


def _measure(name: str, path: Path, given: Given) -> None:
    part = GpuPart(path=path, given=given)
    part.keep()
    try:
        import_module(f"benchmarks.gpu.{MODULES[name]}").measure(part)
    except Skipped as reason:
        part.keep("skipped", str(reason))
    except TimeoutError as error:
        part.keep("out of time", str(error))
    except Exception as error:
        traceback.print_exc()
        part.keep("failed", in_a_line(error))
    else:
        part.keep("out of time" if part.late else "done", part.late)


if __name__ == "__main__":
    _measure(sys.argv[1], Path(sys.argv[2]), Given(**json.loads(sys.argv[3])))
