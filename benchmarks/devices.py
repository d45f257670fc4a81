"""What a step asks of an accelerator, counted on the rig that tests compile, beside stock DDP and a plain loop.

Counts are exact, whatever the machine: kernels, host synchronisations and bytes between device and host.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, at_most, bar
from tests.device.building import built
from tests.device.rig import Rig
from tests.warm.starting import python_path

MODEL = "ResNet-50"
WORKERS = (1, 2, 4)
JOBS = 20
MEMBERS = 2


def main(_: int = 0) -> dict[str, Any]:
    """Count steps, jobs and messages; returns the bars."""
    rig = Rig({"PYTHONPATH": python_path(built()), "OMP_NUM_THREADS": "1"})
    alone = {workers: rig.call("counting.of_trainer", MODEL, workers) for workers in WORKERS}
    loop, ddp = (rig.call(f"counting.{name}", MODEL) for name in ("of_a_loop", "of_ddp"))
    notes = [
        f"kernels of a step of {MODEL}: a plain loop {loop['kernels']}, stock DDP {ddp['kernels']}, fleet "
        + ", ".join(f"{counts['kernels']} for {workers}" for workers, counts in alone.items())
    ]
    return {"bars": [*_steps(alone, loop, ddp), *_together(rig, ddp, loop), _memory(rig)], "notes": notes}


def _steps(alone: dict[int, dict[str, int]], loop: dict[str, int], ddp: dict[str, int]) -> list[Bar]:
    """One trainer with all virtual workers."""
    found = [
        at_most(f"host synchronisations of a step, {workers} on one device", counts.get("syncs", 0), 1)
        for workers, counts in alone.items()
    ]
    found += [
        at_most(f"gradient bytes between device and host, {workers} on one device", _gradient_bytes(counts, workers), 0)
        for workers, counts in alone.items()
    ]
    added, theirs = alone[1]["kernels"] - loop["kernels"], ddp["kernels"] - loop["kernels"]
    return [*found, at_most("kernels added to a plain step, one worker (the bar is DDP's)", added, theirs)]


def _together(rig: Rig, ddp: dict[str, int], loop: dict[str, int]) -> list[Bar]:
    """As many trainers as virtual workers, each on its device, whose gradients travel between the devices."""
    with tempfile.TemporaryDirectory() as folder:
        counted = rig.together("counting.of_members", MEMBERS, Path(folder), MODEL)
    wanted = 2 * (MEMBERS - 1) / MEMBERS * counted[0]["bytes of a gradient"]
    added, theirs = counted[0]["kernels"] - loop["kernels"], ddp["kernels"] - loop["kernels"]
    sent = max(counts["bytes sent"] for counts in counted) / wanted
    return [
        at_most(f"host synchronisations of a step, {MEMBERS} on {MEMBERS}", max(c.get("syncs", 0) for c in counted), 1),
        at_most(f"gradient bytes between device and host, {MEMBERS} on {MEMBERS}", _gradient_bytes(counted[0], 1), 0),
        at_most(f"kernels added to a plain step, {MEMBERS} on {MEMBERS} (the bar is DDP's)", added, theirs),
        bar("bytes that a member sends, of 2 (M - 1) / M of the model", round(sent, 4), "<= 1.001", sent <= 1.001),
    ]


def _memory(rig: Rig) -> Bar:
    left = rig.call("stepping.memory_after", JOBS)
    return at_most(f"bytes on the device after {JOBS} jobs, more than after one", left[-1][0] - left[0][0], 0)


def _gradient_bytes(counts: dict[str, int], losses: int) -> int:
    """What crosses the bus but for the losses, of 4 bytes each."""
    return counts.get("d2h bytes", 0) - 4 * losses + counts.get("h2d bytes", 0)
