"""A run on a host whose counters are files of a temporary folder: networks' energy is told wherever people look."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleet.commands.cli import app
from fleet.report.run_history import read_history
from tests.journals import read_lines
from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import run
from tests.machine.test_energy_counters import zone

SPAN = 400.0
BEGIN = SPAN - 2


class Burning(threading.Thread):
    """Adds a joule a hundred times a second, as a processor of 100 W does, and begins anew at the counter's range."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file, self._over, self.used = file, threading.Event(), 0
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.01):
            self.used += 1
            new = self._file.with_name("new")
            new.write_text(f"{(BEGIN + self.used) % SPAN * 1e6:.0f}\n")
            os.replace(new, self._file)

    def end(self) -> None:
        self._over.set()
        self.join()


@contextmanager
def burning(folder: Path) -> Iterator[Burning]:
    thread = Burning(zone(folder, "0", "package-0", BEGIN, SPAN))
    try:
        yield thread
    finally:
        thread.end()


def test_each_network_is_told_its_energy(tmp_path: Path) -> None:
    counters = {"powercap": str(tmp_path / "powercap"), "hwmon": str(tmp_path / "none")}
    jobs = [mlp("long", stop={"epochs": 6}), mlp("short", stop={"epochs": 2})]
    ensemble = write_ensemble(tmp_path / "e", jobs)
    option = f"resources.energy={json.dumps(counters)}"
    with burning(tmp_path / "powercap") as host:
        ended = run(ensemble.plain("run", "--set", option), ensemble.folder)
    assert ended.code == 0, ended.output
    left = ensemble.left("run")
    told = left.summary["energy"]
    assert told["sources"] == ["rapl"] and told["jobs"].keys() == {"long", "short"}
    assert all(joules > 0 for joules in told["jobs"].values())
    assert told["used"] == pytest.approx(sum(told["jobs"].values()))
    assert 0 < told["used"] + told["idle"] <= host.used
    assert " energy " in ended.output and " more as devices idled" in ended.output

    history = read_history(left.path / "journal.jsonl")
    assert history.energy.to_json() == told
    assert "while devices idled (rapl)" in (left.path / "report.html").read_text()
    standing = json.loads(CliRunner().invoke(app, ["status", str(left.path), "--json", "--all"]).output)
    assert standing["joules"] == pytest.approx(told["used"])
    assert {name: job["joules"] for name, job in standing["jobs"].items()} == pytest.approx(told["jobs"])
    assert "while devices idled" in CliRunner().invoke(app, ["status", str(left.path)]).output


@pytest.mark.parametrize("setting", ['{"read": false, "powercap": "FOLDER"}', '{"powercap": "FOLDER/none"}'])
def test_where_nothing_is_read_nothing_is_said(tmp_path: Path, setting: str) -> None:
    zone(tmp_path / "powercap", "0", "package-0", 1)
    ensemble = write_ensemble(tmp_path / "e", [mlp()])
    option = f"resources.energy={setting.replace('FOLDER', str(tmp_path / 'powercap'))}"
    ended = run(ensemble.plain("run", "--set", option), ensemble.folder)
    assert ended.code == 0, ended.output
    left = ensemble.left("run")
    assert "energy" not in left.summary and " energy " not in ended.output
    assert not [line for line in read_lines(left.path / "journal.jsonl") if line["event"] == "energy"]
    standing = json.loads(CliRunner().invoke(app, ["status", str(left.path), "--json", "--all"]).output)
    assert standing["joules"] is None


def test_a_counter_that_never_answers_holds_nobody_up(tmp_path: Path) -> None:
    file = zone(tmp_path / "powercap", "0", "package-0", 1)
    file.unlink()
    os.mkfifo(file)  # whoever reads it waits for a writer for ever
    ensemble = write_ensemble(tmp_path / "e", [mlp()])
    option = f"resources.energy.powercap={tmp_path / 'powercap'}"
    ended = run(ensemble.plain("run", "--set", option), ensemble.folder)
    assert ended.code == 0, ended.output
    assert ensemble.left("run").summary["status"] == "done" and "energy" not in ensemble.left("run").summary
