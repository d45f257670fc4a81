"""Members of a deep ensemble read one stream, and have the weights that each would have had alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import RunFolder, mlp, write_ensemble
from tests.live.support.processes import FLEET, run

ORDER = 3
MEMBERS = {"a": 7, "b": 8}
WHOLE = "whole"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two members whose weights have seeds of their own, and one with the ensemble's seed."""
    folder = tmp_path_factory.mktemp("run")
    apart = [mlp(name, seed={"weights": weights, "order": ORDER}) for name, weights in MEMBERS.items()]
    resources = {"trainers": 3, "device": "cpu", "ring_samples": 128, "slot_samples": 8}
    ensemble = write_ensemble(folder, [*apart, mlp(WHOLE)], seed=ORDER, resources=resources)
    ended = run(ensemble.plain("run"), folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def test_they_read_one_stream(trained: RunFolder) -> None:
    (stream,) = {(event["lane"], event["stream"]) for event in trained.events("started")}
    assert f"seed {ORDER}" in stream[1]
    assert {event["job"] for event in trained.events("started")} == {*MEMBERS, WHOLE}


def test_a_member_has_the_bits_of_stock_ddp(trained: RunFolder) -> None:
    ended = run([*FLEET, "replay", str(trained.path), "a", "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


def test_the_same_seed_twice_is_one_seed(trained: RunFolder, tmp_path: Path) -> None:
    ensemble = write_ensemble(tmp_path, [mlp(WHOLE, seed={"weights": ORDER, "order": ORDER})], seed=0)
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(ensemble.left("run"), (WHOLE,)), final_states(trained, (WHOLE,)))
