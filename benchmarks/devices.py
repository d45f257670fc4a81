"""What a step asks of an accelerator, counted on the rig that tests compile, beside stock DDP and a plain loop.

Counts are exact, whatever the machine: kernels, host synchronisations and bytes between device and host. One thing is
timed: after how long a group trains again that lost a member.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import lost_devices
from benchmarks.bars import Bar, at_most, bar
from tests.device.building import built
from tests.device.rig import Rig
from tests.warm.starting import python_path

MODEL = "ResNet-50"
WORKERS = (1, 2, 4)
JOBS = 20
MEMBERS = 2


def main(repetitions: int = 0) -> dict[str, Any]:
    """Count steps, jobs and messages; returns the bars. repetitions: of losing a trainer."""
    rig = Rig({"PYTHONPATH": python_path(built()), "OMP_NUM_THREADS": "1"})
    alone = {workers: rig.call("counting.of_trainer", MODEL, workers) for workers in WORKERS}
    loop, ddp = (rig.call(f"counting.{name}", MODEL) for name in ("of_a_loop", "of_ddp"))
    notes = [
        f"kernels of a step of {MODEL}: a plain loop {loop['kernels']}, stock DDP {ddp['kernels']}, fleet "
        + ", ".join(f"{counts['kernels']} for {workers}" for workers, counts in alone.items())
    ]
    together = {workers: _counted(rig, workers) for workers in (MEMBERS, 2 * MEMBERS)}
    notes += [
        f"{workers} workers on {MEMBERS} devices: {counts[0]['kernels']} kernels a member, and {_sent(counts):.3f} of "
        f"the bytes of a ring of {MEMBERS}"
        for workers, counts in together.items()
    ]
    lost, note = lost_devices.measure(rig.variables, repetitions)
    bars = [*_steps(alone, loop, ddp), *_together(together, ddp, loop), _memory(rig), lost]
    return {"bars": bars, "notes": [*notes, note]}


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


def _together(counts: dict[int, list[dict[str, int]]], ddp: dict[str, int], loop: dict[str, int]) -> list[Bar]:
    """Several trainers, each on its device, whose gradients travel between the devices. counts: by workers."""
    found = []
    for workers, members in counts.items():
        where, own = f"{workers} on {MEMBERS}", workers // MEMBERS
        found += [
            at_most(f"host synchronisations of a step, {where}", max(each.get("syncs", 0) for each in members), 1),
            at_most(f"sleeps of the host in a step, {where}", max(each["sleeps"] for each in members), 1),
            at_most(f"gradient bytes between device and host, {where}", _gradient_bytes(members[0], own), 0),
        ]
    late = counts[MEMBERS][0]["kernels after the last sleep"]
    added, theirs = counts[MEMBERS][0]["kernels"] - loop["kernels"], ddp["kernels"] - loop["kernels"]
    sent = _sent(counts[MEMBERS])
    return [
        *found,
        at_most(f"kernels asked for after the host has slept for the sums, {MEMBERS} on {MEMBERS}", late, 0),
        at_most(f"kernels added to a plain step, {MEMBERS} on {MEMBERS} (the bar is DDP's)", added, theirs),
        bar("bytes that a member sends, of 2 (M - 1) / M of the model", round(sent, 4), "<= 1.001", sent <= 1.001),
    ]


def _counted(rig: Rig, workers: int) -> list[dict[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        return rig.together("counting.of_members", MEMBERS, Path(folder), MODEL, workers)


def _sent(members: list[dict[str, int]]) -> float:
    """The most that a member sends in a step, in parts of what a ring of as many members sends."""
    ring = 2 * (MEMBERS - 1) / MEMBERS * members[0]["bytes of a gradient"]
    return max(each["bytes sent"] for each in members) / ring


def _memory(rig: Rig) -> Bar:
    left = rig.call("stepping.memory_after", JOBS)
    return at_most(f"bytes on the device after {JOBS} jobs, more than after one", left[-1][0] - left[0][0], 0)


def _gradient_bytes(counts: dict[str, int], losses: int) -> int:
    """What crosses the bus but for the losses, of 4 bytes each."""
    return counts.get("d2h bytes", 0) - 4 * losses + counts.get("h2d bytes", 0)
