"""A launcher that fails to start: it is tried again, and the third time is the last."""

from __future__ import annotations

import sys
from pathlib import Path

from fleet.machine.launch.local_launch import ATTEMPTS
from tests.run.support.ensembles import mlp, write_ensemble
from tests.run.support.processes import ROOT, Ended, run

REAL = Path(sys.executable).with_name("mpiexec")
MOODY = f"""#!/bin/sh
case "$1" in --version) exec {REAL} --version ;; esac
echo start >> "$STARTS"
[ "$(wc -l < "$STARTS")" -gt "$FAILURES" ] && exec {REAL} "$@"
echo "The PMIx server's listener thread failed to start." >&2
exit 213
"""


def run_with(folder: Path, failures: int, **more: str) -> tuple[Ended, int]:
    """A run whose launcher fails some times; how it ended, and how often the launcher was started."""
    launcher = folder / "bin" / "mpiexec"
    launcher.parent.mkdir()
    launcher.write_text(MOODY)
    launcher.chmod(0o755)
    ensemble = write_ensemble(folder, [mlp()])
    variables = {"FLEET_MPI": "system", "STARTS": str(folder / "starts"), "FAILURES": str(failures), **more}
    ended = run(ensemble.plain("run"), folder, PATH=f"{launcher.parent}:/usr/bin:/bin", **variables)
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


def test_ranks_that_fail_as_they_begin_are_not_started_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "mpi4py.py").write_text("raise ImportError('the library is torn')")
    ended, starts = run_with(tmp_path, failures=0, PYTHONPATH=f"{broken}:{ROOT}")
    assert ended.code != 0 and starts == 1, ended.output
    assert "the library is torn" in ended.output
