"""`pytest --device rig`: the processes of tests see four devices of the rig (see `tests.device`), and no GPU.

Each process may touch one device alone, and draws the host's random numbers, so that the bits are the CPU's. Streams
run late unless they are waited for; RIG_SCHEDULE says how (see `torch_rig`).
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.warm.starting import RIG_FOLDER

RULES = {"RIG_FORBID": "others", "RIG_GENERATOR": "host", "RIG_SCHEDULE": "both-late"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", choices=("rig",), help="let tests train on the rig, an accelerator in the host's memory"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--device") != "rig":
        return
    from tests.device.building import NoCompiler, built

    try:
        folder = str(built())
    except NoCompiler as error:
        pytest.exit(f"--device rig, nothing is tested: {error}", returncode=0)
    os.environ[RIG_FOLDER] = folder
    os.environ.update({name: value for name, value in RULES.items() if name not in os.environ})
    sys.path.append(folder)
    __import__("torch_rig")
