"""What it takes to decide: a result of a search of many trials, and a suggestion by TPE or NSGA-II."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import Any

from benchmarks.bars import at_most
from benchmarks.searched.deciders import InVirtualTime
from benchmarks.searched.drawn_trials import ETA, RUNGS, DrawnTrials
from fleet.search import Record
from fleet.search.halving import Halving
from fleet.search.samplers import Random, sampler_of
from fleet.spec import EnsembleSpec

TRIALS = 10_000
WIDTH = 64
KNOWN = 500  # results
_OVER = {
    "optimizer.arguments.lr": {"log_uniform": [1e-5, 0.1]},
    "optimizer.arguments.weight_decay": {"log_uniform": [1e-6, 0.01]},
    "model.arguments.widths": {"blocks": {"count": [2, 4], "each": {"choice": [8, 16, 32]}}},
    "model.arguments.dropout": {"uniform": [0.0, 0.5]},
}


def measure(repetitions: int) -> dict[str, Any]:
    """Time decisions and suggestions.

    Args:
        repetitions: suggestions; 0: 15.

    Returns:
        {"bars": [...], "notes": [...]}
    """
    each, seconds = _deciding()
    suggestions = {name: _suggesting(name, repetitions or 15) for name in ("tpe", "nsga2")}
    return {
        "bars": [
            at_most(f"a result of {TRIALS:,} trials told and decided on, ms", 1e3 * each, 1.0),
            *(
                at_most(f"a suggestion of {name} with {KNOWN} known trials, median, ms", 1e3 * took, 100.0)
                for name, took in suggestions.items()
            ),
        ],
        "notes": [f"All decisions on {TRIALS:,} trials together took {seconds:.1f} s."],
    }


def _deciding() -> tuple[float, float]:
    """Seconds a result, and of all results together."""
    trials = DrawnTrials(0, TRIALS, 0.3)
    search = InVirtualTime(trials, Halving(RUNGS, ETA), WIDTH, None)
    told, begin = 0, perf_counter()
    while not search.is_over:
        segment = search.needed()[0]
        search.ahead(WIDTH)
        search.tell(segment.trial, segment.end, trials.loss(segment.trial, segment.end))
        told += 1
    seconds = perf_counter() - begin
    return seconds / told, seconds


def _suggesting(name: str, repetitions: int) -> float:
    """The median seconds of a suggestion by a sampler, of two metrics if it weighs several."""
    metrics: Any = ["loss", "seconds"] if name == "nsga2" else "loss"
    search: Any = {
        "name": "trial-{trial}", "job": {"stop": {"epochs": 27}}, "over": _OVER, "metric": metrics, "sampler": name,
        "width": 8, "trials": KNOWN + 1, "mode": ["min", "min"] if name == "nsga2" else "min",
    }  # fmt: skip
    section = EnsembleSpec.model_validate({"name": "searched", "search": search}).search
    assert section is not None
    random, trials = Random(section.over, 1), DrawnTrials(0, KNOWN, 0.3)
    records = [
        Record(
            each, random.suggest(each, ()), {1: trials.loss(each, 1)}, "paused",
            {1: (trials.seconds[each],)} if name == "nsga2" else {},
        )
        for each in range(KNOWN)
    ]  # fmt: skip
    sampler, times = sampler_of(section, 1), []
    for number in range(repetitions + 1):
        begin = perf_counter()
        sampler.suggest(KNOWN + number, records)
        times.append(perf_counter() - begin)
    return statistics.median(times[1:])
