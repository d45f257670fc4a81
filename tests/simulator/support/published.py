"""The published traces and measurements, where the machine has them beside the checkout."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def published(name: str) -> Path:
    """A published file, under FLEET_TRACES or beside the checkout; skips the test without it."""
    folder = Path(os.environ.get("FLEET_TRACES") or ROOT.parent / "shared")
    if not (folder / name).exists():
        pytest.skip(f"{name} is not there; set FLEET_TRACES to the folder of the published traces and measurements")
    return folder / name
