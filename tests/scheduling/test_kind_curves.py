"""A job's rates on unlike devices, alone and together."""

from __future__ import annotations

import pytest

from fleet.scheduling.easyscale.kind_curves import KindCurves, completed, strongest
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve


def curves(**speeds: float) -> dict[str, RateCurve]:
    """Eight virtual workers; two devices of a kind are 1.8 times as fast as one."""
    return {kind: RateCurve({1: speed, 2: 1.8 * speed}, 2, workers=8) for kind, speed in speeds.items()}


def of(**speeds: float) -> KindCurves:
    return KindCurves(curves(**speeds), "fast", workers=8, samples=4)


def test_devices_of_one_kind_go_by_its_curve() -> None:
    job = of(fast=100.0, slow=50.0)
    assert job.pace(("slow", "slow")) == pytest.approx(90.0) and job.shares(("slow", "slow")) == ()
    assert (job.rate(2), job.worker_rate("slow"), job.curve_on("slow")(1)) == (180.0, 12.5, 50.0)


def test_together_they_are_as_fast_as_the_slowest_share_less_what_sums_cost() -> None:
    job = of(fast=100.0, slow=50.0)
    assert job.shares(("fast", "slow", "slow")) == (4, 2, 2)
    kept = job.curve(3) / (8 / 3 * 100.0)  # of the speed of three alike devices, whose largest has three turns
    assert job.pace(("fast", "slow", "slow")) == pytest.approx(200.0 * kept)
    assert job.pace(("slow", "fast")) == job.pace(("fast", "slow"))


def test_what_was_seen_counts_half_against_what_was_known() -> None:
    job = of(fast=100.0, slow=50.0).observed(("fast", "slow"), 120.0)
    assert job.pace(("slow", "fast")) == 120.0, "nothing was known but a guess"
    assert job.observed(("slow", "fast"), 100.0).pace(("fast", "slow")) == 110.0
    assert job.observed(("slow",), 30.0).pace(("slow",)) == 40.0
    assert job.scaled(0.5).pace(("fast", "slow")) == 60.0


def test_how_long_members_computed_tells_how_fast_kinds_are_beside_each_other() -> None:
    job = of(fast=100.0, slow=50.0)
    seen = job.worked(("fast", "slow"), (5, 3), (10.0, 24.0))  # 0.5 and 0.125 workers a second: 4 to 1
    assert seen.speeds == {"fast": 100.0, "slow": 37.5}, "half of what was known, half of what was seen"
    assert seen.shares(("fast", "slow")) == (6, 2)
    assert job.worked(("fast", "slow"), (5, 3), (10.0, 0.0)) is job, "who computed no time was not timed"


def test_a_kind_without_rates_is_guessed_from_other_jobs() -> None:
    found = completed(curves(fast=10.0), ("fast", "slow"), [of(fast=100.0, slow=50.0), of(fast=8.0, slow=4.0)])
    assert (found["slow"](1), found["fast"](1)) == (5.0, 10.0)
    assert completed(curves(fast=10.0), ("fast", "slow"), [])["slow"](1) == 10.0, "nobody knows"


def test_the_strongest_kind_has_the_fastest_devices_together() -> None:
    cluster = Cluster((1, 4), ("fast", "slow"))
    assert strongest(curves(fast=100.0, slow=90.0), cluster, limit=8) == "slow"
    assert strongest(curves(fast=100.0, slow=90.0), cluster, limit=1) == "fast"


def test_its_home_must_have_a_curve() -> None:
    with pytest.raises(ValueError, match="kind 'other' has no curve; there are those of fast"):
        KindCurves(curves(fast=1.0), "other", 8, 1)
