"""A script watched in a process of its own, within a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fleet.spec.from_script.found import Found
from preprocess.files.modules import python
from preprocess.files.reading import read_text

CHILD = "fleet.spec.from_script.child"


def watch_script(target: str, options: Sequence[str], parts: str, seconds: float) -> Found:
    """Run a script until its second step, in a process that ends with it; what it prints goes to standard error.

    Args:
        target: a path that ends in .py, or the name of a module.
        options: the script gets these.
        parts: the name of the module for what plain values cannot say.
        seconds: how long the script may take.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-init-") as folder:
        out = Path(folder) / "found.json"
        words = python("-m", CHILD, str(out), parts, target, *options)
        process = subprocess.Popen(words, stdout=sys.stderr, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            late = f"{target} has not come to its second step within {seconds:g} s; give it smaller data, or --within"
            return Found(problems=(late,))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # workers of its loaders
            process.wait()
        if not out.exists():
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return Found(problems=(f"the process that ran {target} {how} before its second step",))
        return Found.of_text(read_text(out))
