"""A temporary folder in which `fleet` runs small specs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300.0


class Folder:
    """The folder, with files in it, as long as the context lasts."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def __enter__(self) -> Folder:
        self._folder = tempfile.TemporaryDirectory(prefix="numbers-")
        self.path = Path(self._folder.name)
        for name, text in self._files.items():
            (self.path / name).write_text(text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def fleet(self, *words: str) -> tuple[int, str]:
        """Call the command there; return its exit code, and what it wrote."""
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "4000"}
        command = [sys.executable, "-m", "fleet", *words]
        ended = subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        return ended.returncode, ended.stdout + ended.stderr

    def run(self, spec: str, out: str) -> dict[str, Any]:
        """Train a spec; return what its run says of the jobs. RuntimeError if it says nothing."""
        _, said = self.fleet("run", spec, "--out", out)
        told = self.path / out / "run.json"
        if not told.exists():
            raise RuntimeError(f"the run of {spec} did not begin: {said[-2000:]}")
        jobs: dict[str, Any] = json.loads(told.read_text())["jobs"]
        return jobs
