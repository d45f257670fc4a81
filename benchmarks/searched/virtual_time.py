"""What virtual time costs: searches of drawn trials on played devices, beside the same rule as results come."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bars import at_most
from benchmarks.searched.deciders import AsResultsCome, Decider, InVirtualTime
from benchmarks.searched.devices import Devices, Outcome
from benchmarks.searched.drawn_trials import ETA, RUNGS, DrawnTrials
from fleet.search.halving import Halving, SynchronousHalving
from fleet.spec.search import Stopping

SEEDS = 20
TRIALS = 200
DEVICES = 8
ERRORS = (0.3, 0.6)
CONFIDENCE = Stopping(name="halving").confidence

Make = Callable[[DrawnTrials], Decider]


@dataclass(frozen=True)
class Case:
    """One way to decide, on so many devices.

    Attributes:
        name: what the table calls it.
        make: what decides, of drawn trials.
        elastic: whether devices that are left help.
    """

    name: str
    make: Make
    elastic: bool = False


def _asha() -> Halving:
    return Halving(RUNGS, ETA)


def virtual(width: int, prefetch: int | None, speculates: bool = True) -> Make:
    """ASHA in virtual time."""
    return lambda trials: InVirtualTime(trials, _asha(), width, prefetch, speculates)


def confident(width: int) -> Make:
    """Halving in virtual time as fleet does it where it is not told otherwise."""
    return lambda trials: InVirtualTime(trials, Halving(RUNGS, ETA, CONFIDENCE), width, None)


def plain(slots: int) -> Make:
    """ASHA as results come."""
    return lambda trials: AsResultsCome(trials, _asha(), slots)


def barriers(slots: int) -> Make:
    """Synchronous halving."""
    return lambda trials: AsResultsCome(trials, SynchronousHalving(RUNGS, ETA), slots)


def cases(devices: int) -> list[Case]:
    """Plain ASHA, without and with elastic trials, first; then what is held against it."""
    return [
        Case("plain ASHA", plain(devices)),
        Case("plain ASHA, elastic", plain(devices), elastic=True),
        Case("W = D, random sampler", virtual(devices, None)),
        Case("W = 1.5D, K = D", virtual(3 * devices // 2, devices)),
        Case("W = 1.5D, K = 4", virtual(3 * devices // 2, 4)),
        Case("W = 2D, K = D", virtual(2 * devices, devices)),
        Case("W = D, K = D", virtual(devices, devices)),
        Case("W = D, nothing ahead", virtual(devices, 0, speculates=False)),
        Case(f"W = D, random sampler, confidence {CONFIDENCE}", confident(devices)),
        Case("W = D, random sampler, elastic", virtual(devices, None), elastic=True),
        Case("W = 1.5D, K = D, elastic", virtual(3 * devices // 2, devices), elastic=True),
        Case("W = 2D, K = D, elastic", virtual(2 * devices, devices), elastic=True),
        Case("synchronous halving", barriers(devices)),
        Case("synchronous halving, elastic", barriers(devices), elastic=True),
    ]


def measure(repetitions: int) -> dict[str, Any]:
    """Play all cases.

    Args:
        repetitions: seeds; 0: 20.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}
    """
    seeds = repetitions or SEEDS
    tables, found = [], {}
    for error in ERRORS:
        played = _played(range(seeds), error, DEVICES)
        rows = {name: _row(name, outcomes, played) for name, outcomes in played.items()}
        found[error] = rows
        tables.append(
            _table(f"costs wrong by a log-sd of {error}, {DEVICES} devices, {TRIALS} trials, {seeds} seeds", rows)
        )
    return {"bars": _bars(found), "tables": tables, "notes": [_note(found[ERRORS[0]])]}


def _played(seeds: Sequence[int], error: float, devices: int) -> dict[str, list[Outcome]]:
    """Case -> its outcomes, one a seed."""
    played: dict[str, list[Outcome]] = {case.name: [] for case in cases(devices)}
    for seed in seeds:
        trials = DrawnTrials(seed, TRIALS, error)
        for case in cases(devices):
            played[case.name].append(Devices(trials, devices, case.make(trials), case.elastic).play())
    return played


@dataclass(frozen=True)
class Row:
    """A case's figures: ratios to plain ASHA that is as elastic as it is, means over the seeds.

    Attributes:
        seconds: until the search was over; `worst`: of one seed.
        arrived: until the best that plain ASHA found was reached within 1 %, geometric mean; `known`: until the search
            knew of it.
        epochs: that it wanted.
        unused: epochs for nothing, as a part of those that it wanted.
        lost: device-seconds of epochs that were given up, as a part of all.
    """

    seconds: float
    worst: float
    arrived: float
    known: float
    epochs: float
    unused: float
    lost: float


def _row(name: str, outcomes: Sequence[Outcome], played: dict[str, list[Outcome]]) -> Row:
    yardstick = played["plain ASHA, elastic" if name.endswith("elastic") else "plain ASHA"]
    pairs = list(zip(outcomes, yardstick))
    seconds = [mine.seconds / theirs.seconds for mine, theirs in pairs]
    targets = [1.01 * min(loss for _, loss in theirs.arrived) for theirs in yardstick]
    return Row(
        seconds=statistics.fmean(seconds),
        worst=max(seconds),
        arrived=_geometric([_reached(m.arrived, t) / _reached(y.arrived, t) for (m, y), t in zip(pairs, targets)]),
        known=_geometric([_reached(m.known, t) / _reached(y.known, t) for (m, y), t in zip(pairs, targets)]),
        epochs=statistics.fmean(mine.epochs / theirs.epochs for mine, theirs in pairs),
        unused=sum(mine.unused for mine in outcomes) / sum(mine.epochs for mine in outcomes),
        lost=statistics.fmean(mine.lost for mine in outcomes),
    )


def _reached(results: Sequence[tuple[float, float]], target: float) -> float:
    return next((second for second, loss in results if loss <= target), math.inf)


def _geometric(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios))) if all(map(math.isfinite, ratios)) else math.inf


def _table(title: str, rows: dict[str, Row]) -> dict[str, Any]:
    columns = ["", "makespan", "worst seed", "within 1 %", "known", "epochs", "for nothing", "given up"]
    return {
        "title": f"ratios to plain ASHA: {title}",
        "columns": columns,
        "rows": [[name, *(round(value, 3) for value in vars(row).values())] for name, row in rows.items()],
    }


def _bars(found: dict[float, dict[str, Row]]) -> list[dict[str, Any]]:
    usual, wrong = (found[error] for error in ERRORS)
    random, model, between = "W = D, random sampler", "W = 2D, K = D", "W = 1.5D, K = D"
    bars = [
        at_most("makespan over plain ASHA, W = D, random sampler", usual[random].seconds, 1.05),
        at_most("makespan over plain ASHA, W = 2D, K = D", usual[model].seconds, 1.08),
        at_most("the same where costs are wrong by 0.6, W = D", wrong[random].seconds, 1.12),
        at_most("the same where costs are wrong by 0.6, W = 2D, K = D", wrong[model].seconds, 1.12),
        at_most("elastic over elastic, W = D", usual[f"{random}, elastic"].seconds, 1.05),
        at_most("elastic over elastic, W = 2D, K = D", usual[f"{model}, elastic"].seconds, 1.05),
        at_most("time until the best is within 1 %, W = D", usual[random].arrived, 1.15),
        at_most("time until the best is within 1 %, W = 1.5D, K = D", usual[between].arrived, 1.15),
        at_most("time until the best is within 1 %, W = 2D, K = D", usual[model].arrived, 1.15),
        at_most("time until the search knows of it, W = D", usual[random].known, 1.15),
    ]
    for name in (random, model):
        bars.append(at_most(f"epochs for nothing, {name}", usual[name].unused, 0.03))
    return bars


def _note(usual: dict[str, Row]) -> str:
    """What no bar says."""
    wide, sync = usual["W = 2D, K = D"], usual["synchronous halving"]
    return (
        "A wide search begins more trials before it goes on with the best: with W = 2D the best is within 1 % after "
        f"{wide.arrived:.2f} times as long as with plain ASHA. Synchronous halving ends after {sync.seconds:.2f} times "
        f"as long, with {sync.epochs:.2f} times the epochs, and has the best after {sync.arrived:.2f} times as long."
    )
