"""What parts that call `fleet run` ask of this version, and of a run that is done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.part import ROOT

SHARING = "members_per_device"


def may_share() -> bool:
    """Whether trainers may share a device, as the spec's `resources` say."""
    from fleet.spec.resources import Resources

    return SHARING in Resources.model_fields


def digits_path() -> str:
    """PYTHONPATH of processes that read the demo's digits."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT), str(ROOT / "examples")]))


def one_device(kind: str) -> dict[str, str]:
    """Variables of processes that are to see the first device alone: trainers go to all that they see."""
    if kind == "rig":
        return {"RIG_DEVICES": "1"}
    of_cuda = "HIP_VISIBLE_DEVICES" if torch.version.hip else "CUDA_VISIBLE_DEVICES"
    name = {"cuda": of_cuda, "xpu": "ZE_AFFINITY_MASK"}.get(kind)
    return {name: os.environ.get(name, "0").partition(",")[0]} if name else {}


def rate_of(out: Path, samples: int) -> list[Any]:
    """Return the networks that are done, the seconds in which any trained, and samples a second of all together.

    samples: of an epoch.
    """
    told = json.loads((out / "run.json").read_text())
    done = sum(job["status"] == "done" for job in told["jobs"].values())
    rounds = [each for each in told["rounds"] if each["allocation"]]
    seconds = max(each["end"] for each in rounds) - min(each["start"] for each in rounds)
    read = samples * sum(job["epochs"] for job in told["jobs"].values())
    return [done, round(seconds, 2), round(read / seconds)]
