"""Functions of `programs` called on the rig, each in a process that has touched no device before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCHEDULES = ("prompt", "main-late", "side-late", "both-late")
RANDOM = tuple(f"random:{seed}" for seed in (1, 2))
CALL_SECONDS = 120


class Failed(RuntimeError):
    """A call raised, or its process died; the text is what it wrote."""

    def __init__(self, code: int, output: str) -> None:
        super().__init__(f"exit code {code}: {output}")
        self.code = code


class Rig:
    """variables: of the processes' environment, in which `import torch` knows the rig."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = dict(variables)

    def together(self, name: str, ranks: int, folder: Path, *arguments: Any, **variables: str) -> list[Any]:
        """Call a function in so many processes at the same time, with rank, ranks and folder before the arguments.

        Each may touch one device only.
        """
        with ThreadPoolExecutor(ranks) as pool:
            told = {"RIG_FORBID": "others", "GLOO_SOCKET_IFNAME": "lo", **variables}
            calls = [
                pool.submit(self.call, name, rank, ranks, str(folder), *arguments, **told) for rank in range(ranks)
            ]
            return [call.result() for call in calls]

    def call(self, name: str, *arguments: Any, **variables: str) -> Any:
        """Return what the function `module.name` of the programs returns, as JSON brings it over. Failed."""
        ended = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("called.py")), name, json.dumps(arguments)],
            env={**os.environ, **self.variables, **variables}, capture_output=True, text=True, timeout=CALL_SECONDS,
            cwd=ROOT,
        )  # fmt: skip
        if ended.returncode:
            raise Failed(ended.returncode, ended.stderr[-4000:])
        return json.loads(ended.stdout.splitlines()[-1])
