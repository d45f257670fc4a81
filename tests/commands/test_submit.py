"""`fleet submit`: what is wrong with its options is told before anything waits in a queue."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

DIGITS = Path(__file__).parents[2] / "examples" / "digits.yaml"
SLURM = ("submit", DIGITS, "--site", "slurm", "--nodes", "2", "--gpus-per-node", "4", "--dry-run")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--array", "2"), "--array 2: only profiling can be cut into parts; add --profile RATES.json"),
        (("--profile", "rates.json", "--array", "999"), "--array 999: the spec has"),
        (("--env", "NO_SUCH"), "--env NO_SUCH: there is no such variable here; export it, or write NO_SUCH=VALUE"),
        (("--env", "2nd=hidden"), "--env 2nd: write NAME=VALUE, or NAME to take it from here"),
        (("--warn", "5h", "--time", "4h"), "--warn 18000 s: an allocation of 14400 s would be told to stop at once"),
        (("--", "--polcy", "flotilla"), "-- --polcy flotilla: fleet run says: No such option: --polcy"),
        (("--profile", "rates.json", "--", "--rehearse"), "fleet profile says: No such option: --rehearse"),
        (("--", "--restarts", "-1"), "fleet run says: Invalid value for '--restarts'"),
    ],
)
def test_wrong_options_are_told(words: tuple[str, ...], told: str, call: Callable[..., Result]) -> None:
    ended = call(*SLURM, *words)
    assert ended.exit_code == 2 and ended.stderr.startswith("fleet: ") and told in ended.stderr, ended.output
    assert ended.stdout == ""


def test_a_site_that_is_not_known_is_told_the_nearest(call: Callable[..., Result]) -> None:
    ended = call("submit", DIGITS, "--site", "slrum", "--nodes", "1")
    assert ended.exit_code == 2 and "did you mean slurm?" in ended.stderr, ended.output


def test_the_environment_s_path_is_taken_as_it_is(
    call: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever characters are in it."""
    prefix = tmp_path / "my env; echo 'no' $HOME"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "activate").write_text("echo active")
    monkeypatch.setattr(sys, "prefix", str(prefix))
    ended = call(*SLURM)
    assert ended.exit_code == 0, ended.output
    lines = [line for line in ended.stdout.splitlines() if line.startswith(("source ", "export OPAL_PREFIX="))]
    done = subprocess.run(["bash", "-ec", "\n".join(lines)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "active\n"), (lines, done)


def test_options_of_the_run_are_part_of_its_command(call: Callable[..., Result]) -> None:
    ended = call(*SLURM, "--", "--policy", "malleable", "--restarts", "1")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("#!/usr/bin/env bash\n")
    command = next(line for line in ended.stdout.splitlines() if "fleet run" in line and not line.startswith("#"))
    assert "--preprocessors 2" in command and "--policy malleable --restarts 1" in command, command
