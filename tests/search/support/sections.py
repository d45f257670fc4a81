"""Specs with a search, made of plain values."""

from __future__ import annotations

from typing import Any

from fleet.spec import EnsembleSpec

OVER: dict[str, Any] = {
    "optimizer.arguments.lr": {"log_uniform": [0.0001, 0.1]},
    "model.arguments.widths": {"blocks": {"count": [1, 3], "each": {"choice": [8, 16]}}},
    "model.arguments.dropout": {"uniform": [0.0, 0.5]},
    "model.arguments.depth": {"integer": [1, 5]},
    "model.arguments.shape": {"elements": [{"integer": [1, 2]}, {"choice": ["a", [1, 2], None]}]},
}


def spec_of(**search: Any) -> EnsembleSpec:
    """A spec whose search has these keys."""
    usual = {
        "name": "n-{trial}",
        "job": {"stop": {"epochs": 9}},
        "over": OVER,
        "metric": "loss",
        "width": 4,
        "trials": 40,
    }
    return EnsembleSpec.model_validate({"name": "searched", "seed": 5, "search": {**usual, **search}})
