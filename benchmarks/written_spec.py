"""A spec written for a run; with rates for its networks, so that none are measured first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def write_spec(folder: Path, spec: Mapping[str, Any], rates: Mapping[str, Mapping[int, float]] | None = None) -> Path:
    """Write both into `folder`; returns the path of the spec.

    Args:
        spec: all of it, but for `profile` where there are rates.
        rates: by job, samples a second by number of devices; None: the spec says where they come from.
    """
    whole = dict(spec)
    if rates is not None:
        table = {"rates": rates, "names": {name: name for name in rates}}
        (folder / "rates.json").write_text(json.dumps(table))
        whole["profile"] = {"file": "rates.json"}
    path = folder / f"{spec['name']}.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    return path
