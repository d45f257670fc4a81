"""`python -m tests.faults.fuzz [TARGET ...] [--seconds S] [--examples N] [--json FILE]`: each reader, elsewhere.

Where Atheris is installed (`pip install fleet-hpc[fuzz]`), what an example reaches in the code guides the next ones;
else Hypothesis draws them, towards those with the longest outcome.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.faults.fuzz.attempts import SECONDS, Tally, folder_of, say
from tests.faults.fuzz.targets import all_targets

HOUR = 3600.0
START_SECONDS = 120.0  # until a process has its modules, and Atheris has marked them
GRACE_SECONDS = (
    12 * SECONDS
)  # for an example of that computing, or of twice that in another process, on a machine that is shared


def main() -> int:
    """Fuzz the targets one after the other; exit code 1 if something escaped."""
    given = _arguments()
    names = given.targets or [target.name for target in all_targets()]
    engine = "atheris" if find_spec("atheris") and not given.examples else "hypothesis"
    if engine == "hypothesis" and not given.examples:
        say("Atheris is not installed, so nothing guides the examples: pip install atheris")
    with tempfile.TemporaryDirectory(prefix="fleet-fuzz-") as name:
        folder = Path(given.keep or name)
        groups = [names] if given.examples else [[name] for name in names]
        results = [t for group in groups for t in _fuzzed(group, given, folder, given.seconds / len(names))]
    escapes = sum(len(result["escapes"]) for result in results)
    say(f"{engine}: {sum(result['examples'] for result in results)} examples, {escapes} escapes")
    if given.json:
        Path(given.json).write_text(json.dumps({"engine": engine, "targets": results}, indent=1))
    return 1 if escapes else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz")
    parser.add_argument("targets", nargs="*", help="which; by default all")
    parser.add_argument("--seconds", type=float, default=HOUR, help="for all together")
    parser.add_argument("--examples", type=int, default=0, help="so many of each instead, always the same")
    parser.add_argument("--json", help="a file for what was found")
    parser.add_argument("--keep", help="a folder for the examples that escape")
    return parser.parse_args()


def _fuzzed(names: Sequence[str], given: argparse.Namespace, folder: Path, seconds: float) -> list[dict[str, Any]]:
    """Fuzz targets in one process; their tallies, and how the process ended if that was none of its errors."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.faults.fuzz.engines", str(folder), str(seconds), str(given.examples)]
    begin = time.monotonic()
    with open(folder / "output.txt", "wb") as output:
        environment = os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve whole GiB of addresses
        process = subprocess.Popen([*command, *names], stdout=output, stderr=output, env=environment)
        code = _end_of(process, [folder_of(folder, name) / "last.bin" for name in names])
    tallies = [_tally(folder_of(folder, name), name) for name in names]
    if code != 0:
        last = next((tally for tally in reversed(tallies) if tally["examples"]), tallies[0])
        text = (folder / "output.txt").read_text(errors="replace")[-4000:]
        last["escapes"][f"the process ended with {code}"] = text
    for tally in tallies:
        say("{target}: {examples} examples, {refused} refused, slowest {slowest:.2f} s".format_map(tally))
        for key, text in tally["escapes"].items():
            say(f"  ESCAPED {key}\n{text}")
    say(f"{time.monotonic() - begin:.0f} s")
    return tallies


def _tally(folder: Path, name: str) -> dict[str, Any]:
    path = folder / "tally.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else asdict(Tally(name))
    return found


def _end_of(process: subprocess.Popen[bytes], last: Sequence[Path]) -> int:
    """Wait for the end of a process that does its examples, and kill it where one of them takes for ever."""
    begin = time.time() + START_SECONDS
    while True:
        try:
            return process.wait(1.0)
        except subprocess.TimeoutExpired:
            moved = max([path.stat().st_mtime for path in last if path.exists()], default=begin)
            if time.time() > moved + GRACE_SECONDS:
                process.kill()
                process.wait()
                return -9


if __name__ == "__main__":
    sys.exit(main())
