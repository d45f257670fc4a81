"""Batch scripts: what templates may do, who may read what stands in a script, and which secrets are shown."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleet.commands.cli import app
from fleet.machine.launch.launched import CODE_FILE, FOLDER, leave_code, leave_first, tell_up
from tests.trust.support.masks import umask

DIGITS = Path(__file__).parents[2] / "examples" / "digits.yaml"
SCHEDULERS = ("slurm", "lsf", "pbs", "flux")
SLOW_TO_END = "{% for a in range(9999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def submit(*words: object, site: str = "slurm") -> Result:
    """What `fleet submit` says of a spec of the examples, as the command calls it."""
    of_site = ("--site", site, "--nodes", "2", "--gpus-per-node", "4")
    return CliRunner().invoke(app, ["submit", str(DIGITS), *of_site, *map(str, words)])


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def text(content: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(content)

    return write


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (text("{{ ''.__class__.__mro__[1].__subclasses__() }}"), "unsafe"),
        (text("{{ cycler.__init__.__globals__.os.system('touch ran') }}"), "unsafe"),
        (text("{{ self._TemplateReference__context }}"), "unsafe"),
        (text("{{ setup.append('touch ran') }}"), "no attribute 'append'"),
        (text("{% include '../secret' %}"), "no template ../secret"),
        (text("{{ 'x' * 10 ** 10 }}"), "takes more than 512 MB"),
        (text("{% for a in range(99999) %}{{ 'x' * 99 }}{% endfor %}"), "more than 1,048,576 characters"),
        (text(SLOW_TO_END), "not filled in within 10 s"),
        (text("{% include 'own.j2' %}"), "recursion"),
        (text("{{ 1 / 0 }}"), "division by zero"),
        (text("{{ nodes + name }}"), "unsupported operand"),
        (text("a\n{% if %}"), "line 2"),
        (pipe, "is a named pipe and not a regular file"),
        (link_to_a_device, "is a device and not a regular file"),
    ],
)
def test_a_template_fills_in_text_and_does_nothing_else(
    make: Callable[[Path], None], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path.parent / "secret").write_text("nobody else's")
    make(tmp_path / "own.j2")
    ended = submit("--template", tmp_path / "own.j2", "--dry-run")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert told in ended.stderr and "own.j2" in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr
    assert not (tmp_path / "ran").exists()


def test_a_template_may_include_its_neighbours_and_fleet_s_parts(tmp_path: Path) -> None:
    (tmp_path / "part.j2").write_text("# for {{ name }}\n")
    (tmp_path / "own.j2").write_text('#!/bin/sh\n{% include "part.j2" %}{% include "wait.sh.j2" %}')
    ended = submit("--template", tmp_path / "own.j2", "--dry-run")
    assert ended.exit_code == 0 and ended.stdout.startswith("#!/bin/sh\n# for digits\nranks=$!\n"), ended.output


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize("secret", [False, True])
def test_a_script_s_mode_follows_umask_and_is_its_owner_s_alone_where_a_secret_stands_in_it(
    mask: int, secret: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no scheduler is here
    script = tmp_path / "s.sh"
    with umask(mask):
        ended = submit("--script", script, *(["--env", "WANDB_API_KEY=4711"] if secret else ["--env", "PLAIN=4711"]))
    assert ended.exit_code == 1 and "no sbatch here" in ended.stderr
    assert script.stat().st_mode & 0o777 == (0o700 if secret else 0o777 & ~mask)
    assert "=4711" in script.read_text()
    assert ("4711" in ended.output) is not secret
    assert (f"shown as *** stands in {script}, which nobody but you can read" in ended.stderr) is secret


def test_a_script_is_written_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    laid, target = tmp_path / "s.sh", tmp_path / "target"
    laid.symlink_to(target)
    ended = submit("--script", laid)
    assert ended.exit_code == 2 and f"--script {laid}" in ended.stderr
    assert not target.exists()


@pytest.mark.parametrize("site", SCHEDULERS)
def test_the_value_of_a_variable_may_come_from_where_the_script_is_submitted(
    site: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_TOKEN", "4711")
    monkeypatch.setenv("OTHER", "x")
    ended = submit("--env", "MY_TOKEN", "--env", "OTHER", "--dry-run", site=site)
    assert ended.exit_code == 0 and "4711" not in ended.output and ended.stderr == "", ended.output
    lines = ended.stdout.splitlines()
    asked = {
        "slurm": ["#SBATCH --export=ALL,MY_TOKEN,OTHER"],
        "lsf": ['#BSUB -env "all, MY_TOKEN, OTHER"'],
        "pbs": ["#PBS -v MY_TOKEN,OTHER"],
        "flux": ["#flux: --env=MY_TOKEN", "#flux: --env=OTHER"],
    }[site]
    assert [line for line in lines if line in asked] == asked
    if site == "pbs":  # options of the command stand for those of the script
        assert any(line.startswith("qsub -v FLEET_CHAIN,MY_TOKEN,OTHER ") for line in lines)
    line = next(line for line in lines if line.startswith("export MY_TOKEN="))
    for known in ({"MY_TOKEN": "4711"}, {}):
        done = subprocess.run(["bash", "-ec", f'{line}\necho "$MY_TOKEN"'], env=known, capture_output=True, text=True)
        assert (done.returncode == 0, done.stdout) == ((True, "4711\n") if known else (False, "")), done.stderr
        assert known or "MY_TOKEN: is to come from the environment" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--env", "HF_TOKEN=47'1 1"),
        ("--env", "MLFLOW_TRACKING_URI=https://me:47'1@host/"),
        ("--setup", "export DB_PASSWORD=4\\ '7 1'"),
        ("--env", "A=https://host/?access_token=471"),
    ],
)
def test_a_secret_is_not_shown(words: tuple[str, str]) -> None:
    ended = submit(*words, "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert not re.search("4.*7.?1", ended.output) and "***" in ended.stdout
    assert ended.stdout.startswith("#!/usr/bin/env bash\n")
    assert (
        ended.stderr
        == "fleet: what is shown as *** stands in the script; --env NAME, without its value, leaves it out\n"
    )


@pytest.mark.parametrize("laid", ["code", ".code.new", "code.up"])
def test_the_code_that_a_script_waits_for_is_written_through_no_link(laid: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / laid).symlink_to(target)
    wanted = {CODE_FILE: str(tmp_path / "code")}
    tell_up(0, wanted)
    assert leave_code(0, 75, wanted) == 0
    assert target.read_text() == "mine"
    assert (tmp_path / "code").read_text() == "75\n" and (tmp_path / "code.up").read_text() == ""
    assert not (tmp_path / "code").is_symlink()


def test_the_first_note_stays(tmp_path: Path) -> None:
    folder = {FOLDER: str(tmp_path)}
    for value in (70, 1):
        leave_first("aborted", value, folder)
    assert (tmp_path / "aborted").read_text() == "70" and [path.name for path in tmp_path.iterdir()] == ["aborted"]
