"""The command line in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 240.0


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said on both channels."""

    code: int
    output: str


def fleet(folder: Path, *words: str) -> Ended:
    """Run `fleet` in a folder; modules of this repository can be imported there."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "fleet", *words]
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    return Ended(done.returncode, done.stdout + done.stderr)


def write_spec(folder: Path, values: Mapping[str, Any]) -> str:
    """Write a spec into a folder; return the name of its file."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(dict(values)))
    return "spec.yaml"
