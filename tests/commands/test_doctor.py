"""`fleet doctor`: its exit code is what its checks say."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from typer.testing import Result

from fleet.commands import doctor
from fleet.machine.doctor import Check, Verdict


def test_the_verdicts_and_the_code_agree(call: Callable[..., Result]) -> None:
    ended = call("doctor", "--json")
    told = json.loads(ended.stdout)
    verdicts = {check["name"]: check["verdict"] for check in told["checks"]}
    assert {"python", "mpi"} <= verdicts.keys()
    assert told["ok"] == (Verdict.BROKEN.value not in verdicts.values()) == (ended.exit_code == 0)
    assert all(check["mend"] for check in told["checks"] if check["verdict"] == Verdict.BROKEN.value)


def test_what_is_broken_is_told_with_its_mend(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [Check("python", Verdict.OK, "3.11", ""), Check("mpi", Verdict.BROKEN, "no [launcher]", "install [one]")]
    doctor._show(checks)
    told = capsys.readouterr().out
    assert "no [launcher]" in told and "install [one]" in told and told.rstrip().endswith("broken: mpi")
