"""Networks that train one after the other on one stream: their samples are made once, and no bit tells of it."""

from __future__ import annotations

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.parts import HELD_OUT, TRAINING
from tests.live.support.processes import run

EPOCHS, JOBS = 3, ("mlp", "cnn", "again")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Three networks, each on both trainers."""
    jobs = [each(name=name, stop={"epochs": EPOCHS}) for each, name in zip((mlp, cnn, mlp), JOBS)]
    resources = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8}
    return write_ensemble(tmp_path_factory.mktemp("in-turn"), jobs, policy={"name": "fifo"}, resources=resources)


@pytest.fixture(scope="module")
def kept(ensemble: Ensemble) -> RunFolder:
    ended = run(ensemble.plain("kept"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("kept")


def test_those_that_come_later_find_the_samples_of_the_first(kept: RunFolder) -> None:
    assert len(kept.summary["rounds"]) >= len(JOBS), "one after the other"
    counted = kept.summary["samples"]
    once = EPOCHS * TRAINING + HELD_OUT
    assert counted["read"] >= len(JOBS) * EPOCHS * (TRAINING + HELD_OUT)
    assert once <= counted["made"] < 1.5 * once, "what is made ahead of a network that ends is made for the next one"


@pytest.mark.parametrize("change", ["resources.store.memory=0", "data.pictures.store=false"])
def test_bits_are_those_of_a_run_that_keeps_none(ensemble: Ensemble, kept: RunFolder, change: str) -> None:
    ended = run(ensemble.plain(change, "--set", change), ensemble.folder)
    assert ended.code == 0, ended.output
    counted = ensemble.left(change).summary["samples"]
    assert counted["laid"] == counted["made"] > 0
    assert_same_bits(final_states(ensemble.left(change), JOBS), final_states(kept, JOBS))
