"""Prices of devices in runs: what is too dear is left alone, jobs wait for better times, and costs are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.support.ensembles import Ensemble, cnn, mlp, write_ensemble, write_rates
from tests.live.support.processes import run

KINDS = {"fast": 0, "slow": "1-2"}
RATES = {"fast": {1: 1000.0, 2: 1900.0}, "slow": {1: 500.0, 2: 950.0}}  # less than preprocessors make


def priced(
    folder: Path, prices: Any, worth: float | None, kinds: Any = KINDS, epochs: int = 2, **policy: Any
) -> Ensemble:
    """Two networks on three trainers; those of the kind `slow` are half as fast, says a file."""
    resources = {"trainers": 3, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "kinds": kinds}
    sections: dict[str, Any] = {"resources": {**resources, "prices": prices}, "profile": {"file": "rates.json"}}
    told = {"name": "throughput", **policy, **({} if worth is None else {"worth": worth})}
    jobs = [{**job, "stop": {"epochs": epochs}} for job in (mlp(), cnn(), mlp("other"))]
    ensemble = write_ensemble(folder, jobs, measured=False, policy=told, **sections)
    by_kind = {f"{job['name']}, {kind}": rates for job in jobs for kind, rates in RATES.items()}
    write_rates(folder / "rates.json", by_kind | {job["name"]: {1: 1e6, 2: 1.9e6} for job in jobs})
    return ensemble


@pytest.mark.parametrize("worth, slow_ones", [(2.0, False), (None, True)])
def test_a_kind_that_costs_more_than_it_brings_is_left_alone(
    tmp_path: Path, worth: float | None, slow_ones: bool
) -> None:
    # With more epochs a job would learn that the fast kind is not as fast as the file says.
    ensemble = priced(tmp_path, {"fast": 1.0, "slow": 1.5}, worth, epochs=1)
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0, ended.output
    left = ensemble.left("run")
    used = {device for event in left.events("started") for device in event["devices"]}
    assert 0 in used and (not used.isdisjoint({1, 2})) is slow_ones
    assert left.events("prices")[0]["courses"] == {"fast": [[0.0, 1.0]], "slow": [[0.0, 1.5]]}
    costs = left.summary["costs"]
    assert costs["jobs"].keys() == {"mlp", "cnn", "other"} and min(costs["jobs"].values()) > 0
    seconds = left.summary["wall_seconds"]
    assert costs["held"] == pytest.approx(4.0 * seconds / 3600, rel=0.05) and 0 < costs["used"] <= costs["held"]
    assert "with idle devices" in ended.output and "cost" in (left.path / "report.html").read_text()


def test_jobs_wait_until_a_price_falls(tmp_path: Path) -> None:
    ensemble = priced(tmp_path, {"any": [[0, 3.0], [4, 1.0]]}, 2.0, kinds={})
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0, ended.output
    left = ensemble.left("run")
    assert min(event["t"] for event in left.events("started")) >= 4.0
    assert left.events("prices")[0]["courses"] == {"": [[0.0, 3.0], [4.0, 1.0]]}


def test_who_can_never_pay_has_failed_and_is_told_why(tmp_path: Path) -> None:
    ensemble = priced(tmp_path, {"any": 3.0}, 2.0, kinds={})
    ended = run(ensemble.plain("run"), tmp_path)
    jobs = ensemble.left("run").summary["jobs"]
    assert ended.code == 1 and {result["status"] for result in jobs.values()} == {"failed"}, ended.output
    assert "devices cost more than they are worth (devices 1.50 times)" in jobs["mlp"]["error"]


@pytest.mark.parametrize(
    "prices, worth, said",
    [
        ({"fast": 1.0}, 2.0, "resources.prices has no price for slow"),
        ({}, 2.0, "policy.worth is 2, and no device has a price"),
        ({"fast": [[5, 1.0]], "slow": 1.0}, None, "it must begin at 0, and ascend"),
    ],
)
def test_prices_that_say_too_little_are_refused(tmp_path: Path, prices: Any, worth: float | None, said: str) -> None:
    ensemble = priced(tmp_path, prices, worth)
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 2 and said in ended.output, ended.output
    assert not (tmp_path / "run" / "journal.jsonl").exists()
