"""Networks that go wrong, each in one way and phase: each costs itself alone, and two healthy ones keep their bits."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.faults.conftest import HEALTHY, beside, going_wrong
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import WELL_FED, Ensemble, RunFolder, mlp, pictures
from tests.live.support.processes import run

SAYS = {
    "raise": "RuntimeError: the hull leaks",
    "surrogate": "RuntimeError: there is no file p?x",
    "unprintable": "Unprintable",
    "memory": "MemoryError: no room for the cargo",
    "exit": "SystemExit: 3",
    "exit at once": "its code called os._exit(3)",
    "nan": "Diverged",
    "inf": "Diverged",
    "huge": "Diverged",
    "strange": "holds a object, which a checkpoint cannot hold",
    "crash": "Segmentation fault",
    "abort": "Aborted",
    "kill": "killed",
    "hang": "in go_wrong",
}


RAISING = ("raise", "surrogate", "unprintable", "memory", "exit", "exit at once")
ENDING = ("crash", "abort", "kill", "hang")
NUMBERS = ("nan", "inf", "huge")
PHASES = ("build", "profile", "step", "last step", "evaluation", "metric", "schedule", "checkpoint", "move")
TOLD = ("evaluation", "metric")  # phases in which a number is told as what it is
CASES = [
    *product((*RAISING, *ENDING), PHASES),
    *product(NUMBERS, ("step", "last step", "schedule", *TOLD)),
    ("strange", "checkpoint"),
]
SECONDS, COLD_SECONDS = 150.0, 300.0  # that a run may take; from cold it may start three times
DRAWN = [("strange", "checkpoint")]  # the rest takes minutes


def strict(text: str) -> Any:
    """JSON as readers other than Python's take it."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def trained(ensemble: Ensemble, healthy: RunFolder, seconds: float = SECONDS) -> dict[str, Any]:
    """Run it; the healthy networks end with their bits. Returns what run.json says of the jobs."""
    ended = run(ensemble.plain("run"), ensemble.folder, seconds)
    assert ended.code in (0, 1), ended.output
    left = ensemble.left("run")
    jobs: dict[str, Any] = strict(left.run_json)["jobs"]
    assert_same_bits(final_states(left, HEALTHY), final_states(healthy, HEALTHY))
    failed = any(job["status"] == "failed" for job in jobs.values())
    assert ended.code == int(failed), ended.output
    return jobs


def test_numbers_that_are_none_and_odd_words_cost_their_networks_alone(tmp_path: Path, healthy: RunFolder) -> None:
    faults = ("surrogate", "unprintable", "exit", "exit at once")
    metrics = [going_wrong(fault, "metric") for fault in ("nan", "inf", "huge")]
    jobs = trained(beside(tmp_path, *metrics, *(going_wrong(fault, "step") for fault in faults)), healthy)
    for name, value in {"nan-metric": None, "inf-metric": None, "huge-metric": 1e300}.items():
        assert (jobs[name]["status"], jobs[name]["metrics"]["right"]) == ("done", value)
    for fault in faults:
        failed = jobs[going_wrong(fault, "step")["name"]]
        assert failed["status"] == "failed" and SAYS[fault] in failed["error"]


@pytest.mark.timeout(2 * COLD_SECONDS)
@pytest.mark.parametrize(
    ("fault", "phase"),
    [pytest.param(*case, marks=() if case in DRAWN else pytest.mark.slow, id="-".join(case)) for case in CASES],
)
def test_a_fault_costs_its_network_alone(
    fault: str, phase: str, tmp_path: Path, healthy: RunFolder, request: pytest.FixtureRequest
) -> None:
    if fault in ENDING:
        request.getfixturevalue("started_cold")
    moves = phase == "move"  # it trains first, and alone at last, when it gets both devices
    keys: dict[str, Any] = {"name": f"a-{fault}".replace(" ", "-"), "stop": {"epochs": 150}} if moves else {}
    more: dict[str, Any] = {"policy": {"name": "easyscale"}, "rates": WELL_FED} if moves else {}
    job = going_wrong(fault, phase, **keys)
    timeout = 6.0 if fault == "hang" else 60.0
    seconds = COLD_SECONDS if fault in ENDING else SECONDS
    jobs = trained(beside(tmp_path, job, timeout=timeout, measured=phase != "profile", **more), healthy, seconds)
    found = jobs[job["name"]]
    if phase in TOLD and fault in NUMBERS:
        assert found["status"] == "done"
    else:
        assert found["status"] == "failed", found
        assert SAYS[fault] in found["error"] or (fault == "huge" and "without overflow" in found["error"]), found


CRASHES_ON_RANKS = """
import ctypes, os
from trainers.zoo import MLP as Net
if "OMPI_COMM_WORLD_RANK" in os.environ:
    ctypes.string_at(0)
"""


@pytest.mark.slow
def test_code_that_ends_rank_0_as_it_checks_the_spec_is_told_with_its_stack(tmp_path: Path, started_cold: None) -> None:
    (tmp_path / "crashing.py").write_text(CRASHES_ON_RANKS)
    ensemble = beside(tmp_path, {"name": "crashing", "model": {"name": "crashing:Net", "arguments": {"widths": [4]}}})
    ended = run(ensemble.plain("run"), ensemble.folder)
    assert ended.code == 1, ended.output
    assert f'"{tmp_path}/crashing.py", line 5' in ended.output and "ended while it checked the spec" in ended.output
    assert "started again" not in ended.output


def test_a_data_set_without_samples_is_named_before_anything_trains(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("class Nothing(list):\n    pass\n")
    data = {"pictures": pictures(), "nothing": {"train": {"source": "nothing:Nothing"}}}
    ensemble = beside(tmp_path, {**mlp("idle"), "data": "nothing"}, data=data)
    ended = run(ensemble.plain("run"), ensemble.folder)
    assert ended.code == 2 and "nothing" in ended.output and "Traceback" not in ended.output, ended.output
