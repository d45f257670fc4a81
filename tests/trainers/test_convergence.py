"""When a job is done."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers import Stop, converged
from trainers.state import history as histories
from trainers.state.history import Direction, History, is_better


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
        converged([{"accuracy": 0.5}], Stop(5, target={"acuracy": 0.9}, better={"acuracy": "higher"}))


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_declared_direction_counts_whatever_the_metric_is_called(better: Direction) -> None:
    stop = Stop(9, target={"top5_error": 0.2}, better={"top5_error": better})
    assert converged([{"top5_error": 0.1}], stop) == ("target" if better == "lower" else None)
    assert is_better(better, 0.1, 0.2) == (better == "lower")


@pytest.mark.parametrize("stop", [{"target": {"wer": 0.1}}, {"patience": 2, "monitor": "wer"}])
def test_a_direction_that_nobody_declares_is_asked_for(stop: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"more or less of 'wer' is better; give better=\{'wer': 'lower'\}"):
        Stop(9, **stop)
    assert Stop(9, monitor="wer").patience is None


def test_epochs_without_a_value_end_nobody() -> None:
    nothing = float("nan")
    stop = Stop(100, target={"accuracy": 0.9}, patience=2, monitor="accuracy")
    values = [0.5, nothing, nothing, nothing, 0.6, 0.4, nothing, 0.4]
    history = [{"accuracy": value} for value in values]
    assert [converged(history[:n], stop) for n in range(1, 9)] == [None] * 7 + ["patience"]
    assert converged([{"accuracy": 0.5}, {"loss": 1.0}, {"loss": 1.0}], stop) is None
    assert History([{"accuracy": nothing}, {"loss": 1.0}, {"accuracy": 0.5}]).best("accuracy", "higher") == (0.5, 3)
    assert History([{"accuracy": nothing}]).best("accuracy", "higher") is None


VALUES = st.sampled_from([float("nan"), 0.0, 0.1, 0.15, 0.2, 0.5, 0.55, 0.6])


def without_improvement(values: list[float], better: Direction, margin: float) -> int:
    """The same as a `History` says, from all values."""
    best, since = math.nan, 0
    for value in values:
        if not math.isnan(value):
            wanted = best - margin if better == "lower" else best + margin
            is_new = math.isnan(best) or is_better(better, value, wanted)
            best, since = (value, 0) if is_new else (best, since + 1)
    return since


@given(
    st.lists(VALUES, min_size=1, max_size=30), st.sets(st.integers(0, 29)), st.integers(1, 5),
    st.sampled_from(["higher", "lower"]), st.sampled_from([0.0, 0.1]),
)  # fmt: skip
def test_a_history_knows_of_dropped_epochs_what_rules_ask_for(
    values: list[float], restarts: set[int], kept: int, better: Direction, margin: float
) -> None:
    history = History()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histories, "KEPT", kept)
        for epoch, value in enumerate(values, 1):
            history.append({"accuracy": value, "loss": 1.0})
            known = values[:epoch]
            there = [each for each in known if not math.isnan(each)]
            best = (max if better == "higher" else min)(there, default=None)
            assert history.without_improvement("accuracy", better, margin) == without_improvement(known, better, margin)
            assert history.best("accuracy", better) == (None if best is None else (best, known.index(best) + 1))
            if epoch in restarts:
                tree = history.as_tree()
                history = History(tree["history"], tree.get("past"))
    assert len(history) == len(values) and len(list(history)) == min(kept, len(values))
    assert history == [{"loss": 1.0, "accuracy": value} for value in values]
    assert history != [{"loss": 1.0, "accuracy": value} for value in [0.7, *values[1:]]]
    assert history.at(len(values))["loss"] == 1.0 and history.at(len(values) - kept) == history.at(0) == {}


def test_an_older_checkpoint_s_whole_history_is_seen_by_a_rule_before_epochs_are_dropped() -> None:
    values = [0.5 + 0.001 * epoch for epoch in range(3 * histories.KEPT)]
    history = History([{"accuracy": value} for value in values])
    stop = Stop(1000, patience=1000, minimum_improvement=0.1, monitor="accuracy")
    assert converged(history, stop) is None and not history.dropped
    history.append({"accuracy": 0.0})
    assert history.dropped and history.without_improvement("accuracy", "higher", 0.1) == without_improvement(
        [*values, 0.0], "higher", 0.1
    )
