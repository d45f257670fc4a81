"""Trainers without a network prepare samples, train again as soon as one wants them, and no bit tells of it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, mlp, pictures, write_ensemble
from tests.live.support.processes import FLEET, run, started
from tests.live.test_added_jobs import add, held, late
from tests.live.test_promises import add as promised

SECONDS = 0.002  # a picture: one preprocessor makes less than 500 a second, and the rates ask for a million
EPOCHS, STOPPED = 4, 75


def written(folder: Path, preparing: int) -> Ensemble:
    """One network on two trainers, of which the second would bring it nothing."""
    reading = {"seconds": SECONDS}
    return write_ensemble(
        folder,
        [mlp(stop={"epochs": EPOCHS})],
        data={"pictures": pictures(reading, reading)},
        policy={"name": "malleable"},
        resources={
            "trainers": 2, "preparing_trainers": preparing, "device": "cpu", "ring_samples": 128, "slot_samples": 8,
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    return written(tmp_path_factory.mktemp("lent"), 1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Without trainers that prepare, and both networks in the spec from the beginning."""
    folder = tmp_path_factory.mktemp("alone")
    alone = write_ensemble(folder, [mlp(stop={"epochs": EPOCHS}), late()])
    ended = run(alone.plain("out"), folder)
    assert ended.code == 0, ended.output
    return alone.left("out")


@pytest.fixture(scope="module")
def lent(ensemble: Ensemble) -> RunFolder:
    """A run to which a second network is added while a trainer prepares the samples of the first."""
    folder, gate = ensemble.left("added"), held(ensemble, "added")
    with started(ensemble.plain("added"), ensemble.folder, **gate) as it:
        it.wait_for(lambda: bool(folder.events("started")), "the first network to train")
        ended = add(ensemble, "added", late())
        assert ended.code == 0, ended.output
        Path(gate["GATE"]).touch()
        ended = it.finish()
    assert ended.code == 0, ended.output
    return folder


def test_a_trainer_prepares_samples_until_a_network_gets_it(lent: RunFolder) -> None:
    (first, *_), (late_one, *_) = lent.events("started", "mlp"), lent.events("started", "late")
    (helper,) = first["prepared_by"]
    assert helper not in first["devices"]
    planned = {line["round"]: line for line in lent.events("planned")}
    assert planned[first["round"]]["lent"] == 1 and planned[late_one["round"]]["lent"] == 0
    (chosen,) = [line for line in lent.events("preprocessing") if line["round"] == first["round"]]
    assert (chosen["working"], chosen["available"], chosen["trainers"]) == (1, 1, [helper])
    again = next(line for line in lent.events("started", "mlp") if line["round"] == late_one["round"])
    assert again["moved"] and "prepared_by" not in again, "its lane was the trainer's"
    assert {*again["devices"], *late_one["devices"]} == {0, 1}, "all trainers train"


def test_a_trainer_that_becomes_free_helps_a_network_that_goes_on(tmp_path: Path) -> None:
    reading = {"seconds": 5 * SECONDS}
    jobs = [mlp(name=name, stop={"epochs": epochs}) for name, epochs in (("long", 15), ("brief", 2))]
    resources = {"trainers": 2, "preparing_trainers": 1, "device": "cpu", "ring_samples": 128, "slot_samples": 8}
    data, policy = {"pictures": pictures(reading, reading)}, {"name": "malleable"}
    made = write_ensemble(tmp_path, jobs, data=data, policy=policy, resources=resources)
    ended = run(made.plain("out"), tmp_path)
    assert ended.code == 0, ended.output
    folder = made.left("out")
    (brief,), (first, again) = folder.events("started", "brief"), folder.events("started", "long")
    assert "prepared_by" not in first and again["moved"] and again["prepared_by"] == brief["devices"]


def test_a_network_that_comes_is_measured_where_a_trainer_prepares_and_the_others_go_on(tmp_path: Path) -> None:
    reading = {"seconds": 5 * SECONDS}
    resources = {"trainers": 2, "preparing_trainers": 1, "device": "cpu", "ring_samples": 128, "slot_samples": 8}
    made = write_ensemble(
        tmp_path, [mlp(stop={"epochs": 200})], data={"pictures": pictures(reading, reading)},
        policy={"name": "elasticflow", "parameters": {"slot": 1.0}}, resources=resources,
    )  # fmt: skip
    folder = made.left("out")
    with started(made.plain("out"), tmp_path) as it:
        it.wait_for(lambda: bool(folder.events("started")), "the first network to train")
        yes = promised(made, "yes", "--deadline", "900")
        assert (yes.code, "yes: taken in, and promised the deadline" in yes.output) == (0, True), yes.output
        it.interrupt(signal.SIGINT)
        assert it.finish().code == STOPPED
    (profile,), (first, alone, *_) = folder.events("profile", "yes"), folder.events("started", "mlp")
    stops = [line for line in folder.events("stopped", "mlp") if line["t"] < profile["t"]]
    assert first["prepared_by"] == profile["devices"] and "prepared_by" not in alone and alone["moved"]
    assert len(stops) == 1 and stops[0]["t"] < alone["t"] < profile["t"], "it trains on while the other is measured"
    assert alone["devices"] == first["devices"]


def test_bits_are_those_of_a_run_without(lent: RunFolder, undisturbed: RunFolder) -> None:
    jobs = ("mlp", "late")
    assert_same_bits(final_states(lent, jobs), final_states(undisturbed, jobs))


def test_what_it_made_is_counted(lent: RunFolder) -> None:
    samples = lent.summary["samples"]
    assert samples["made"] >= samples["read"] / 2, "the networks share what is made, and more is made than is read"


def test_the_others_go_on_when_it_is_lost(ensemble: Ensemble, undisturbed: RunFolder) -> None:
    folder = ensemble.left("lost")
    with started(ensemble.plain("lost"), ensemble.folder) as it:
        it.wait_for(lambda: bool(folder.events("checkpoint", "mlp")), "a checkpoint")
        (helper,) = folder.events("started", "mlp")[0]["prepared_by"]
        it.kill_rank(1 + helper)
        ended = it.finish()
    assert ended.code == 0, ended.output
    assert len(folder.events("session")) == 1, "all ranks were started again"
    (lost,) = folder.events("lost")
    assert lost["devices"] == [helper]
    assert "prepared_by" not in folder.events("started", "mlp")[-1]
    assert_same_bits(final_states(folder, ("mlp",)), final_states(undisturbed, ("mlp",)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"resources.preparing_trainers": 2}, "set it to at most 1"),
        ({"data.pictures.order": "{shuffle: blocks, block: 8}"}, "goes by blocks"),
    ],
)
def test_what_brings_nothing_is_refused(ensemble: Ensemble, change: dict[str, object], words: str) -> None:
    options = [option for key, value in change.items() for option in ("--set", f"{key}={value}")]
    ended = run(ensemble.plain("refused", *options), ensemble.folder)
    assert ended.code == 2 and "preparing_trainers" in ended.output and words in ended.output, ended.output


def test_kept_samples_are_those_of_their_makers(ensemble: Ensemble) -> None:
    ended = run(ensemble.plain("kept", "--set", "data.pictures.store=true"), ensemble.folder)
    assert ended.code == 2 and "are kept by the preprocessors" in ended.output, ended.output


def test_several_hosts_are_refused(ensemble: Ensemble) -> None:
    ended = run(ensemble.plain("hosts", "--rehearse", "--cluster", "1,1"), ensemble.folder)
    assert ended.code == 2 and "their own host alone" in ended.output, ended.output


def test_the_plan_counts_with_them(ensemble: Ensemble) -> None:
    """One preprocessor makes 50 samples/s, and the network would eat a million."""

    def planned(preparing: int) -> dict[str, Any]:
        values = ("rehearse.preprocessors={1: 50.0}", "policy.restart=0", f"resources.preparing_trainers={preparing}")
        options = [option for value in values for option in ("--set", value)]
        ended = run([*FLEET, "plan", str(ensemble.spec), "--json", *options], ensemble.folder)
        assert ended.code == 0, ended.output
        return json.loads(ended.output[ended.output.index("{") :])  # type: ignore[no-any-return]

    alone, helped = planned(0), planned(1)
    assert [one["lent"] for one in helped["flotillas"]] == [1] and "lent" not in alone["flotillas"][0]
    assert helped["predicted_seconds"] == pytest.approx(alone["predicted_seconds"] / 2, rel=0.01)


def test_a_rehearsal_lends_trainers_too(ensemble: Ensemble) -> None:
    options = ("--rehearse", "--set", "rehearse.preprocessors={1: 1000.0}", "--set", "rehearse.rates=rates.json")
    ended = run(ensemble.plain("rehearsed", *options), ensemble.folder)
    assert ended.code == 0, ended.output
    (begun,) = ensemble.left("rehearsed").events("started")
    assert len(begun["prepared_by"]) == 1
