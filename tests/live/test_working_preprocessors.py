"""Preprocessors that work in one round and rest in another, and no bit tells of it."""

from __future__ import annotations

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, counting, mlp, pictures, write_ensemble, write_rates
from tests.live.support.processes import run

SECONDS = 0.0025  # a picture: one preprocessor makes less than 400 a second
RATES = {"fast": 700.0, "slow": 60.0, "slower": 20.0}
"""Samples/s as the run believes them: the first takes more than one preprocessor, each of the others one."""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    folder = tmp_path_factory.mktemp("fed")
    reading = {"seconds": SECONDS}
    jobs = [counting("fast", stop={"epochs": 1}), mlp("slow"), cnn("slower")]
    ensemble = write_ensemble(folder, jobs, data={"pictures": pictures(reading, reading)})
    write_rates(folder / "rates.json", {job: {1: rate, 2: 1.9 * rate} for job, rate in RATES.items()})
    return ensemble


@pytest.fixture(scope="module")
def fed(ensemble: Ensemble) -> RunFolder:
    ended = run(ensemble.plain("fed", "--preprocessors", "3"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("fed")


def test_as_many_work_as_each_round_demands(fed: RunFolder) -> None:
    (measured,) = fed.events("preprocessors")
    assert set(measured["counts"]) == {"1", "2", "3"}
    assert measured["of_data"].keys() == measured["of_new"].keys() == {"pictures"}
    chosen = {tuple(round_["allocation"]): round_ for round_ in fed.events("planned")}
    working = {line["round"]: line for line in fed.events("preprocessing")}
    assert working.keys() == {round_["round"] for round_ in fed.events("planned")}
    fast, slow = (working[chosen[(job,)]["round"]] for job in ("fast", "slower"))
    assert fast["demand"] == RATES["fast"] and 2 <= fast["working"] <= fast["available"] == 3
    assert slow["working"] == 1 and slow["demand"] <= measured["counts"]["1"]


def test_bits_are_those_of_one_preprocessor(ensemble: Ensemble, fed: RunFolder) -> None:
    ended = run(ensemble.plain("one"), ensemble.folder)
    assert ended.code == 0, ended.output
    assert not ensemble.left("one").events("preprocessing"), "there is nothing to choose"
    assert_same_bits(final_states(fed, tuple(RATES)), final_states(ensemble.left("one"), tuple(RATES)))


def test_the_report_tells_who_worked(fed: RunFolder) -> None:
    page = (fed.path / "report.html").read_text()
    assert "Preprocessors at work" in page and "Demand, samples/s" in page
