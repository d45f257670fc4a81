"""A run as a program sees it: begun, read without torch and MPI, steered, with errors that are for people."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fleet
from fleet.models.errors import RunError
from fleet.spec import SpecError, load
from tests.live.support.ensembles import Ensemble, RunFolder
from tests.live.support.processes import started
from tests.warm.starting import python_path

BARE = """
import json, sys
for name in ("torch", "mpi4py", "pandas", "h5py", "trainers"):
    sys.modules[name] = None
import fleet
run = fleet.attach(sys.argv[1])
first = run.ask()
run.tell(first, 0.5)
try:
    run.table()
except ValueError as error:
    print(error, file=sys.stderr)
results = run.results()
print(json.dumps([run.status, results.best()["name"], len(results), run.change(trials=11), results.to_dict()]))
"""


@pytest.fixture
def copied(on_one_device: RunFolder, tmp_path: Path) -> RunFolder:
    shutil.copytree(on_one_device.path, tmp_path / "copied")
    return RunFolder(tmp_path / "copied")


def test_a_laptop_without_torch_and_mpi_reads_and_steers_a_run(copied: RunFolder) -> None:
    command = [sys.executable, "-c", BARE, str(copied.path)]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": python_path()}, timeout=120)
    assert done.returncode == 0, done.stderr
    status, best, count, wish, columns = json.loads(done.stdout)
    assert (status, count, wish) == ("done", 11, 0) and "pip install pandas" in done.stderr
    search = copied.summary["search"]
    assert best == min([search["best"], "own-0"], key=lambda name: 0.5 if name == "own-0" else search["best_value"])
    assert columns["name"] == [*copied.summary["jobs"], "own-0"] and {len(each) for each in columns.values()} == {11}


def test_results_are_those_of_the_run(copied: RunFolder) -> None:
    results, jobs = fleet.attach(copied.path).results(), copied.summary["jobs"]
    search = {trial["name"]: trial for trial in copied.summary["search"]["trials"]}
    for row in results:
        assert (row["status"], row["epochs"]) == (jobs[row["name"]]["status"], len(results.histories[row["name"]]))
        assert all(row[path] == value for path, value in search[row["name"]]["values"].items())
        assert (row["error"] is not None) == (row["status"] == "failed")
    assert results.best()["name"] == copied.summary["search"]["best"]
    assert results.best("accuracy")["accuracy"] == max(
        row["accuracy"] for row in results if row["accuracy"] is not None
    )
    with pytest.raises(RunError, match="no network has a metric 'beauty'; the columns are name, status"):
        results.best("beauty")


def test_a_run_is_begun_with_values_and_gone_on_with(searching: Ensemble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(searching.folder)
    values = load(searching.spec).to_mapping()
    begun = fleet.run(values, "noted", settings={"search.trials": 2}, wait=False)
    assert begun.wait() and begun.status == "done"
    assert len(begun.results()) == 2
    assert (searching.folder / "noted" / "given.yaml").is_file()
    loaded = begun.load([begun.results().best()["name"]])
    assert list(loaded.names) == [begun.results().best()["name"]]
    assert fleet.load("noted").results().rows == begun.results().rows


def test_an_interrupted_program_leaves_a_run_that_has_stopped_well(searching: Ensemble) -> None:
    folder = searching.left("interrupted")
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # as in a terminal
    program = f"{heard}; import fleet; fleet.run({str(searching.spec)!r}, {str(folder.path)!r})"
    gate = searching.folder / "interrupted-gate"
    with started([sys.executable, "-c", program], searching.folder, GATE=str(gate), GATE_AFTER="5") as it:
        it.wait_for(lambda: bool(folder.events("result")), "a result")
        it.interrupt()
        it.wait_for(lambda: "asked to stop" in it.output, "the run to hear of it")
        gate.touch()
        ended = it.finish()
    assert ended.code != 0 and "KeyboardInterrupt" in ended.output
    assert folder.summary["status"] == "stopped" and fleet.attach(folder.path).status == "stopped"


def test_mistakes_are_errors_with_their_mends(
    searching: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="there is no such file"):
        fleet.run("nowhere.yaml")
    with pytest.raises(SpecError, match="trials"):
        fleet.run(searching.spec, settings={"search.trials": -1})
    with pytest.raises(RunError, match="nowhere holds no run"):
        fleet.attach(tmp_path / "nowhere")
    with pytest.raises(RunError, match="pretends nodes, which only a rehearsal can"):
        fleet.run(searching.spec, options=("--cluster", "2x2"))


def test_wrong_wishes_are_refused(copied: RunFolder) -> None:
    run = fleet.attach(copied.path)
    with pytest.raises(RunError, match="no bound trails"):
        run.change(trails=3)
    with pytest.raises(RunError, match="width is 0"):
        run.change(width=0)
    with pytest.raises(RunError, match="name one of trials"):
        run.change()
    with pytest.raises(RunError, match=r"optimizer\.arguments\.lr has no value"):
        run.ask({"model.arguments.fault": "raise", "model.arguments.picture": 40})
    with pytest.raises(RunError, match="nobody has asked for a trial 3"):
        run.tell(3, 0.5)
    asked = run.ask()
    with pytest.raises(RunError, match="finite value"):
        run.tell(asked, math.nan)
    with pytest.raises(RunError, match="finite value"):
        run.tell(asked, 0.5, failed=True)
    run.tell(asked, 0.5)
    run.tell(asked, 0.5)
    with pytest.raises(RunError, match="came to 0.5 before"):
        run.tell(asked, 0.25)
