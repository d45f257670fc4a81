"""When a job is done."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers import Stop, converged
from trainers.convergence.convergence import is_better


def test_the_last_epoch_ends_a_job() -> None:
    assert converged([], Stop(2)) is None
    assert converged([{"test_loss": 1.0}], Stop(2)) is None
    assert converged([{"test_loss": 1.0}] * 2, Stop(2)) == "epochs"


def test_every_target_must_be_reached() -> None:
    stop = Stop(10, target={"accuracy": 0.9, "test_loss": 0.5})
    assert converged([{"accuracy": 0.95, "test_loss": 0.6}], stop) is None
    assert converged([{"accuracy": 0.85, "test_loss": 0.4}], stop) is None
    assert converged([{"accuracy": 0.9, "test_loss": 0.5}], stop) == "target"


def test_patience_counts_epochs_without_improvement() -> None:
    stop = Stop(100, patience=2, minimum_improvement=0.01, monitor="accuracy")
    values = [0.5, 0.6, 0.605, 0.609, 0.615]
    history = [{"accuracy": value} for value in values]
    assert [converged(history[:n], stop) for n in range(1, 6)] == [None, None, None, "patience", None]


def test_losses_improve_downwards() -> None:
    stop = Stop(100, patience=2)
    falling = [{"test_loss": value} for value in (1.0, 0.9, 0.8, 0.7)]
    assert converged(falling, stop) is None
    assert converged(falling[::-1], stop) == "patience"


@given(st.lists(st.floats(0, 1), max_size=20), st.integers(1, 5))
def test_patience_never_ends_a_job_at_its_best_epoch(values: list[float], patience: int) -> None:
    history = [{"accuracy": value} for value in [*values, math.nextafter(max(values, default=0.0), math.inf)]]
    assert converged(history, Stop(1000, patience=patience, monitor="accuracy")) is None


def test_a_loss_that_was_not_a_number_is_not_the_best() -> None:
    history = [{"test_loss": value} for value in (float("nan"), 3.0, 2.0)]
    assert converged(history, Stop(100, patience=2)) is None


def test_wrong_conditions_are_named() -> None:
    with pytest.raises(ValueError, match="patience is 0"):
        Stop(1, patience=0)
    with pytest.raises(ValueError, match="epochs is 0"):
        Stop(0)
    with pytest.raises(KeyError, match="no metric is called 'acuracy'; this job has accuracy"):
        converged([{"accuracy": 0.5}], Stop(5, target={"acuracy": 0.9}))


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        ("test_loss", True),
        ("loss", True),
        ("top5_error", True),
        ("RMSE", True),
        ("accuracy", False),
        ("glossiness", False),
    ],
)
def test_less_of_losses_and_errors_is_better(metric: str, lower: bool) -> None:
    assert is_better(metric, 0.1, 0.2) == lower
    assert converged([{metric: 0.1}], Stop(9, target={metric: 0.2})) == ("target" if lower else None)
