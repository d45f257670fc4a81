"""Jobs that are promised devices in the mean of windows: who gives them up, what is told, and no bit tells of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import WELL_FED, RunFolder, mlp, write_ensemble
from tests.live.support.processes import FLEET, run

PAID = {"devices": 1, "window": 600}
SLOW = {"name": "slow", "model": {"name": "parts:Slow"}, "stop": {"epochs": 1}}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Both on one trainer, one after the other."""
    folder = tmp_path_factory.mktemp("alone")
    ensemble = write_ensemble(folder, [{**SLOW, "virtual_workers": 2}, mlp("paid", virtual_workers=1)], rates=WELL_FED)
    ended = run(ensemble.plain("run", "--trainers", "1"), folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    """On two trainers: slow is promised both, in windows of a second, and paid comes, which is more important."""
    folder = tmp_path_factory.mktemp("shared")
    slow = {**SLOW, "virtual_workers": 2, "service_level": {"devices": 2, "window": 1}}
    paid = mlp("paid", virtual_workers=1, arrival=3.0, priority=1, service_level=PAID)
    ensemble = write_ensemble(folder, [slow, paid], policy={"name": "easyscale"}, rates=WELL_FED)
    ended = run(ensemble.plain("run", "--trainers", "2"), folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run"), ended.output


def test_a_job_has_what_it_is_promised_while_others_train(shared: tuple[RunFolder, str], alone: RunFolder) -> None:
    folder, _ = shared
    (paid,) = folder.events("started", "paid")
    assert len(paid["devices"]) == 1 and paid["t"] < folder.events("done", "slow")[0]["t"]
    assert folder.events("stopped", "slow")[0]["why"] == "policy"
    assert [len(event["devices"]) for event in folder.events("started", "slow")][:2] == [2, 1]
    assert_same_bits(final_states(folder, ("slow", "paid")), final_states(alone, ("slow", "paid")))


def test_what_became_of_each_window_is_written_down_and_a_broken_one_is_told(shared: tuple[RunFolder, str]) -> None:
    folder, output = shared
    windows = folder.events("service_window", "slow")
    broken = [window for window in windows if window["broken"]]
    assert broken and all(window["had"] < window["promised"] for window in broken)
    assert all(window["t"] >= window["begin"] for window in windows)
    ends = [window["end"] for window in windows]
    assert ends == sorted(set(ends)), "each is told once"
    assert folder.summary["jobs"]["slow"]["service"] == {"windows": len(windows), "broken": len(broken)}
    assert "service" not in folder.summary["jobs"]["paid"], "its window is not over"
    assert "warning: slow: its service level is broken: " in output
    assert folder.events("job", "paid")[0]["service_level"] == {"devices": 1.0, "window": 600.0}


def test_the_report_and_a_simulation_of_the_run_know_of_it(shared: tuple[RunFolder, str], tmp_path: Path) -> None:
    folder, _ = shared
    reported = run([*FLEET, "report", str(folder.path)], tmp_path)
    page = (folder.path / "report.html").read_text()
    assert reported.code == 0 and "its service level is broken" in page and "is damaged" not in page
    words = [*FLEET, "simulate", "--run", str(folder.path), "--policy"]
    played = run([*words, "easyscale", "--json"], tmp_path)
    assert played.code == 0 and json.loads(played.output)["service_windows"] >= 0, played.output
    refused = run([*words, "flotilla"], tmp_path)
    assert refused.code == 2 and "is promised a service level" in refused.output, refused.output
