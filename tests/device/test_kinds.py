"""Devices of two kinds that a person has named: who may have both, and that its bits stay the same."""

from __future__ import annotations

from typing import Any

import pytest

from tests.device.rig import Rig
from tests.device.test_runs import ON_ITS_OWN, assert_same_bits
from tests.live.support.bits import final_states
from tests.live.support.ensembles import RunFolder, mlp, write_ensemble, write_rates
from tests.live.support.parts import CLASSES, SIDE
from tests.live.support.processes import run
from tests.warm.starting import warmed
from trainers.repeatable.instruction_sets import environment

MAY, MAY_NOT = "plain", "mlp"
"""A network of matrix products, and one with dropout."""
RATES = {"fast": 1e6, "slow": 5e5}


@pytest.fixture(scope="module")
def runs(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    """On two kinds, and on one device."""
    model = {"name": "trainers.zoo:MLP", "arguments": {"inputs": SIDE**2, "widths": [16], "classes": CLASSES}}
    jobs = [{"name": MAY, "model": model, "virtual_workers": 6}, mlp(MAY_NOT, virtual_workers=6, arrival=0.1)]
    resources = {"trainers": 2, "device": "auto", "ring_samples": 128, "slot_samples": 8}
    sections: dict[str, Any] = {"determinism": "D2", "policy": {"name": "easyscale"}, "profile": {"file": "rates.json"}}
    kinds = {**resources, "kinds": {"fast": [0], "slow": [1]}}
    folder = tmp_path_factory.mktemp("kinds-of-devices")
    made = write_ensemble(folder, jobs, measured=False, resources=kinds, **sections)
    by_kind = {f"{job['name']}, {kind}": {1: rate} for job in jobs for kind, rate in RATES.items()}
    write_rates(folder / "rates.json", by_kind | {str(job["name"]): {1: 1e6} for job in jobs})
    with warmed(PYTHONPATH=rig.variables["PYTHONPATH"], **environment("avx2")) as pinned:
        for out, options in (("both", ()), ("one", ("--trainers", "1", "--set", "resources.kinds={}"))):
            ended = run(made.plain(out, *options), folder, **pinned, **ON_ITS_OWN)
            assert ended.code == 0, ended.output
    return made.left("both"), made.left("one")


def test_the_scan_decides_who_lands_on_both(runs: tuple[RunFolder, RunFolder]) -> None:
    both, _ = runs
    devices = {job: {tuple(event["devices"]) for event in both.events("started", job)} for job in (MAY, MAY_NOT)}
    assert (0, 1) in devices[MAY], devices
    assert all(len(each) == 1 for each in devices[MAY_NOT]) and len(devices[MAY_NOT]) == 1, "one kind, for good"
    told = [line["text"] for line in both.events("warning") if "keeps to one kind of device" in line["text"]]
    assert len(told) == 1 and told[0].startswith(f"job {MAY_NOT} ") and "random draws" in told[0]


def test_bits_are_those_of_one_device(runs: tuple[RunFolder, RunFolder]) -> None:
    both, one = (final_states(folder, (MAY, MAY_NOT)) for folder in runs)
    for job in (MAY, MAY_NOT):
        assert_same_bits(both[job], one[job])
