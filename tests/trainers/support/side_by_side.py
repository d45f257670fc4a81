"""Programs that run at the same time, as the members of a job do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence


def run_side_by_side(commands: Sequence[Sequence[str]], environment: Mapping[str, str], seconds: float) -> None:
    """Wait for all; end them all if one hangs or fails, and show what a failed one wrote."""
    processes = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )
        for command in commands
    ]  # fmt: skip
    try:
        for process in processes:
            output, _ = process.communicate(timeout=seconds)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
