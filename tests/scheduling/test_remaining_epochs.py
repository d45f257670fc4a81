"""What is expected of a job's length: from the mean, from its losses, and never from what it hides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.scheduling.model.remaining_epochs import (
    ASSUMED_EPOCHS,
    FLAT,
    epochs_from_losses,
    remaining_samples,
    residual_epochs,
)  # fmt: skip
from tests.scheduling.support.printed import job


def falling(epochs: int, a: float = 0.5, b: float = 0.4, c: float = 0.2) -> tuple[float, ...]:
    """l(k) = 1 / (a k + b) + c."""
    return tuple(1 / (a * k + b) + c for k in range(1, epochs + 1))


def test_a_job_that_has_not_begun_needs_the_mean() -> None:
    assert residual_epochs(np.array([0.0]), 30.0)[0] == pytest.approx(30, rel=0.01)


@given(st.floats(1, 100), st.floats(0, 3))
def test_what_is_left_is_the_mean_of_those_that_go_on(mean: float, part: float) -> None:
    # Against draws: log-normal epochs with that mean, those beyond `part` of it.
    z = np.linspace(-6, 6, 400_001)[1:-1]
    weights = np.exp(-z * z / 2)
    epochs = np.exp(0.4 * z - 0.08)
    beyond = epochs > part
    assume(weights[beyond].sum() / weights.sum() > 1e-4)
    wanted = (epochs[beyond] * weights[beyond]).sum() / weights[beyond].sum() - part
    assert residual_epochs(np.array([part * mean]), mean)[0] == pytest.approx(wanted * mean, rel=0.02)


def test_losses_tell_when_they_will_be_flat() -> None:
    # -l'(k) = 0.5 / (0.5 k + 0.4)^2 is 0.004 of l(1) - c = 1 / 0.9 at k = 20.4.
    flat = (math.sqrt(0.5 / (FLAT / 0.9)) - 0.4) / 0.5
    for seen in (8, 12, 18):
        told = epochs_from_losses(falling(seen))
        assert told is not None and told + seen == pytest.approx(flat, rel=0.25)
    assert epochs_from_losses(falling(60)) == 0.0


@pytest.mark.parametrize("losses", [[], [1.0, 0.5], [1.0] * 9, [1, 2, 3, 4, 5, 6], [1.0, math.nan, 0.5, 0.4, 0.3, 0.2]])
def test_losses_that_tell_nothing(losses: list[float]) -> None:
    assert epochs_from_losses(tuple(losses)) is None


def test_what_is_known_is_taken_and_what_is_not_is_assumed() -> None:
    known, unknown = job("a", 10).changed(remaining=70.0), job("b", 10).changed(epoch=5.0)
    found = remaining_samples([known, unknown], 0.0, None)
    assert found[0] == 70 and found[1] == pytest.approx(5 * ASSUMED_EPOCHS, rel=0.01)


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_the_blind_do_not_look(one: float, other: float) -> None:
    ensemble = [job("a", 10).changed(remaining=left, epoch=5.0, trained=20.0) for left in (one, other)]
    found = remaining_samples(ensemble, 0.0, 12.0)
    assert found[0] == found[1]


def test_losses_weigh_more_than_the_mean() -> None:
    told = job("a", 10).changed(epoch=100.0, trained=1000.0, losses=falling(10))
    untold = told.changed(losses=())
    for mean in (40.0, 100.0):
        by_both, by_mean = remaining_samples([told, untold], 0.0, mean)
        (by_losses,) = remaining_samples([told], 0.0, None)
        assert sorted((by_both, by_mean, by_losses))[1] == by_both
        assert abs(math.log(by_both / by_losses)) < abs(math.log(by_both / by_mean))


def test_of_a_job_whose_curve_is_flat_a_little_is_left() -> None:
    losses = falling(30)
    flat = job("a", 10).changed(epoch=1.0, trained=30.0, losses=losses)
    (left,) = remaining_samples([flat], 0.0, None)
    assert epochs_from_losses(losses) == 0 and 0 < left < 10
