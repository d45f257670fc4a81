"""Compiles the rig, and becomes a nursery that knows it. Argument: the path of its socket."""

from __future__ import annotations

import os
import sys

from tests.device.building import NoCompiler, built
from tests.warm.starting import python_path

if __name__ == "__main__":
    try:
        folder = built()
    except NoCompiler as error:
        sys.exit(str(error))
    environment = {**os.environ, "PYTHONPATH": python_path(folder)}
    os.execve(sys.executable, [sys.executable, "-m", "tests.warm.nursery", sys.argv[1]], environment)
