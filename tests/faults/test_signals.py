"""A signal in any phase of a run's start and end: it stops or is done, says so, and the same command ends it."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.faults.conftest import HEALTHY, beside
from tests.faults.support import stepping
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder
from tests.live.support.processes import ROOT, Ended, run

ROLES = ("launcher", "0", "1")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
UNHEARD = {*(-number for number in SIGNALS), 130}
PYTHON = "python"  # the phase in which it starts, imports or ends: nobody can hear anything


def stepped(ensemble: Ensemble, out: str, role: str, **variables: str) -> Ended:
    """A run, started cold, while the steps of the process of that role are looked at."""
    folder = ensemble.folder / "stepping"
    folder.mkdir(exist_ok=True)
    shutil.copy(stepping.__file__, folder / "sitecustomize.py")
    return run(ensemble.plain(out), ensemble.folder, PYTHONPATH=f"{folder}:{ROOT}", STEP_ROLE=role, **variables)


def phases(folder: Path, role: str) -> list[str]:
    """Those of an undisturbed run."""
    ended = stepped(beside(folder), "undisturbed", role, STEP_LOG=str(folder))
    assert ended.code == 0, ended.output
    return (folder / role).read_text().splitlines()


def check(ensemble: Ensemble, healthy: RunFolder, role: str, phase: str, number: signal.Signals) -> None:
    """Signal the command in the phase; then start it again, and it ends with the bits of one that nobody signalled."""
    out = f"{role}-{phase}-{number.name}"
    ended = stepped(ensemble, out, role, STEP_PHASE=phase, STEP_SIGNAL=str(int(number)))
    what = f"{number.name} to the launcher as {role} was in {phase}: code {ended.code}\n{ended.output}"
    begun = ensemble.left(out).path.exists()
    assert ended.code in (0, 75) or not begun and ended.code in UNHEARD, what
    assert "Traceback" not in ended.output or phase == PYTHON, what
    if ended.code:
        again = run(ensemble.plain(out), ensemble.folder)
        assert again.code == 0, f"{what}\n{again.output}"
    assert_same_bits(final_states(ensemble.left(out), HEALTHY), final_states(healthy, HEALTHY))


def test_a_signal_as_the_ranks_are_started(tmp_path: Path, healthy: RunFolder) -> None:
    check(beside(tmp_path), healthy, "launcher", "fleet.machine.launch.local_launch._attempt", signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("role", ROLES)
def test_a_signal_in_any_phase(tmp_path: Path, healthy: RunFolder, role: str) -> None:
    found = phases(tmp_path, role)
    ensemble = beside(tmp_path)
    wrong: list[str] = []
    for place, phase in enumerate(found):
        for number in SIGNALS if role == "launcher" else SIGNALS[place % 3 :][:1]:
            try:
                check(ensemble, healthy, role, phase, number)
            except AssertionError as error:
                wrong.append(str(error))
    print(f"{role}: {len(found)} phases")
    assert not wrong, f"{len(wrong)} of {len(found)} phases:\n" + "\n---\n".join(wrong)
