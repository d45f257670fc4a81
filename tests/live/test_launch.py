"""A launcher that fails to start: it is tried again, and the third time is the last."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from fleet.machine.launch.local_launch import ATTEMPTS
from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import ROOT, Ended, run, started

REAL = Path(sys.executable).with_name("mpiexec")
MOODY = f"""#!/bin/sh
case "$1" in --version) exec {REAL} --version ;; esac
echo start >> "$STARTS"
[ "$(wc -l < "$STARTS")" -gt "$FAILURES" ] && exec {REAL} "$@"
echo "The PMIx server's listener thread failed to start." >&2
exit 213
"""

SLOW_TO_END = f"""#!/bin/sh
case "$1" in --version) exec {REAL} --version ;; esac
{REAL} "$@"
code=$?
touch "$GONE"
while [ ! -e "$LET_GO" ]; do sleep 0.05; done
exit $code
"""

NOTING = f"""#!/bin/sh
case "$1" in --version) exec {REAL} --version ;; esac
env > "$SEEN"
exec {REAL} "$@"
"""


def launcher_of(folder: Path, text: str) -> dict[str, str]:
    """Variables with which a run takes this program for mpiexec."""
    launcher = folder / "bin" / "mpiexec"
    launcher.parent.mkdir()
    launcher.write_text(text)
    launcher.chmod(0o755)
    return {"FLEET_MPI": "system", "PATH": f"{launcher.parent}:/usr/bin:/bin"}


def run_with(folder: Path, failures: int, **more: str) -> tuple[Ended, int]:
    """A run whose launcher fails some times; how it ended, and how often the launcher was started."""
    ensemble = write_ensemble(folder, [mlp()])
    variables = {"STARTS": str(folder / "starts"), "FAILURES": str(failures), **more}
    ended = run(ensemble.plain("run"), folder, **launcher_of(folder, MOODY), **variables)
    return ended, len((folder / "starts").read_text().splitlines())


def test_launcher_is_started_again_when_no_rank_began(tmp_path: Path) -> None:
    ended, starts = run_with(tmp_path, failures=1)
    assert ended.code == 0, ended.output
    assert starts == 2 and f"attempt 2 of {ATTEMPTS}" in ended.output
    assert "1 done" in ended.output


def test_launcher_that_never_starts_a_rank_ends_the_run(tmp_path: Path) -> None:
    ended, starts = run_with(tmp_path, failures=99)
    assert (ended.code, starts) == (1, ATTEMPTS)
    assert f"no rank in {ATTEMPTS} attempts" in ended.output and "Traceback" not in ended.output
    assert "killed" not in ended.output


@pytest.mark.slow
def test_ranks_that_fail_as_they_begin_are_not_started_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "mpi4py.py").write_text("raise ImportError('the library is torn')")
    ended, starts = run_with(tmp_path, failures=0, PYTHONPATH=f"{broken}:{ROOT}")
    assert ended.code != 0 and starts == 1, ended.output
    assert "the library is torn" in ended.output


def test_an_interrupt_after_the_last_rank_has_ended_changes_nothing(tmp_path: Path) -> None:
    """The launcher lives on for a moment."""
    ensemble, gone, gate = write_ensemble(tmp_path, [mlp()]), tmp_path / "gone", tmp_path / "gate"
    variables = {**launcher_of(tmp_path, SLOW_TO_END), "GONE": str(gone), "LET_GO": str(gate)}
    with started(ensemble.plain("run", "--no-in-place"), tmp_path, **variables) as running:
        running.wait_for(gone.exists, "the ranks to end")
        running.interrupt(signal.SIGINT)
        ended = lambda: running.process.poll() is not None
        running.wait_for(lambda: "the run is over" in running.output or ended(), "an answer to the interrupt")
        gate.touch()
        end = running.finish()
    assert end.code == 0 and "Traceback" not in end.output, end.output


def test_local_ranks_talk_over_the_loopback_interface_alone(tmp_path: Path) -> None:
    ensemble, seen = write_ensemble(tmp_path, [mlp()]), tmp_path / "seen"
    ended = run(ensemble.plain("run"), tmp_path, **launcher_of(tmp_path, NOTING), SEEN=str(seen))
    assert ended.code == 0, ended.output
    lines = seen.read_text().splitlines()
    assert "PMIX_MCA_ptl_base_if_include=lo" in lines, lines
