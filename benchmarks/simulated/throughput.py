"""Elastic scaling with variable batch size against fixed batches (Saxena et al., 2020, Tables III and IV)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.simulated.drawn_batch_jobs import BatchJobs, batch_trace
from benchmarks.simulated.part import Part
from benchmarks.simulated.profiled_machine import ProfiledMachine
from benchmarks.simulated.published_profiles import K_MAX, published_profiles
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.spec.policies import policy

MINUTE = 60.0
SEEDS = {40: 7, 400: 3}
"""Traces drawn for each size, where the user asks for no number."""
OTHERS_SEEDS = 3
RESTART = 60.0
"""Seconds that a move costs where moves cost anything."""


@dataclass(frozen=True)
class Figures:
    """A line of their tables.

    Attributes:
        drops: share of the jobs that are dropped, where jobs are.
        minutes: mean completion time where they wait.
        efficiency: SJS efficiency there.
    """

    drops: float
    minutes: float
    efficiency: float


@dataclass(frozen=True)
class Published:
    """Their figures at a size: the policy and its baseline; and for how long jobs come."""

    minutes: float
    elastic: Figures
    baseline: Figures


PUBLISHED: Mapping[int, Published] = {
    40: Published(720, Figures(0.1009, 33.79, 0.8603), Figures(0.3957, 351.02, 0.4194)),
    400: Published(480, Figures(0.0123, 22.96, 0.8153), Figures(0.3828, 166.82, 0.4310)),
}
WITHIN = 0.25
"""By how much of the paper's gain ours may be above it or below it."""


@dataclass(frozen=True)
class Choice:
    """What the paper leaves open, or advises beside what it measured.

    Attributes:
        parameters: the policy's.
        network: how many times as fast as theirs devices exchange weights.
        fits: how many times as many samples as assumed fit on a device.
        restart: seconds that a move costs.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    network: float = 1.0
    fits: float = 1.0
    restart: float = 0.0


AS_ASSUMED = Choice()
SELDOM = Choice({"interval": 600.0}, restart=RESTART)
OTHERS: Mapping[str, Choice] = {
    "as assumed": AS_ASSUMED,
    "0.85 times as many samples fit on a device": Choice(fits=0.85),
    "2 times as many": Choice(fits=2.0),
    "4 times as many": Choice(fits=4.0),
    "8 times as many: each largest batch": Choice(fits=8.0),
    "later jobs may go first (their Figure 4)": Choice({"backfill": True}),
    "a move costs 60 s": Choice(restart=RESTART),
    "a move costs 60 s and must bring 0.5": Choice({"stay": 0.5}, restart=RESTART),
    "a move costs 60 s, a plan each 10 min or 2 events": Choice({"interval": 600.0, "events": 2}, restart=RESTART),
    "a device costs 0.5 of its throughput": Choice({"price": 0.5}),
    "the network 1.5 times as fast": Choice(network=1.5),
    "the network 1.5 times as fast, a move costs 60 s, a plan each 10 min": Choice(
        {"interval": 600.0}, network=1.5, restart=RESTART
    ),
    "the network twice as fast": Choice(network=2.0),
}
"""What else is tried at 40 devices."""


def measure(part: Part, repetitions: int) -> None:
    """Their two tables, what the choices behind them change, and Max-BS and Min-BS.

    Args:
        repetitions: seeds of each; 0: as many as `SEEDS` says.
    """
    for size, published in PUBLISHED.items():
        _gains(part, f"{size} devices", size, published, range(repetitions or SEEDS[size]))
    name = "40 devices, a plan each 10 min, a move costs 60 s"
    _gains(part, name, 40, PUBLISHED[40], range(repetitions or SEEDS[40]), SELDOM)
    _others(part, range(repetitions or OTHERS_SEEDS))
    _ends_of_the_range(part, range(repetitions or OTHERS_SEEDS))
    _best_fixed(part, range(repetitions or OTHERS_SEEDS))
    part.note(
        "the paper prints no times: the rates follow from its Table II, its experiment on 5 devices, its network and "
        "the arithmetic of its models, the arrivals (as much work as all devices do, a quarter of it in quiet hours) "
        "from the numbers of jobs in its figures 7 and 9; nothing is fitted to Tables III and IV"
    )
    part.note(
        "gains grow where the baseline scales worse, so a bar holds them from both sides; the lines of faster networks "
        "and of more samples that fit show the gains where the baseline scales as well as in the paper, or better"
    )


def _gains(part: Part, name: str, size: int, published: Published, seeds: range, choice: Choice = AS_ASSUMED) -> None:
    """The bars at a size: medians over the seeds of the gain on the same trace, near the paper's from both sides."""
    ours, theirs = ([_figures(size, published.minutes, seed, batch, choice) for seed in seeds] for batch in MODES)
    lines = {
        "ours: elastic": ours, "ours: baseline": theirs,
        "paper: elastic": [published.elastic], "paper: baseline": [published.baseline],
    }  # fmt: skip
    title = f"{name}, median (least .. most) of {len(seeds)} seeds"
    part.table(title, COLUMNS, [_row(policy_, figures) for policy_, figures in lines.items()])
    wanted = _gain(published.elastic, published.baseline)
    found = np.array([_gain(*pair) for pair in zip(ours, theirs)])
    for (what, text), paper, gains in zip(GAINS, wanted, found.T):
        gain = float(np.median(gains))
        spread = f"{gains.min():.2f} .. {gains.max():.2f} over {len(seeds)} seeds"
        part.bar(f"{name}: {what}", gain, f"{paper:.2f} +- {WITHIN:.0%} ({text}; {spread})", _is_near(gain, paper))


def _is_near(gain: float, paper: float) -> bool:
    """Whether a gain is neither far below the paper's nor far above it: either is a misfit."""
    return abs(gain - paper) <= WITHIN * paper


MODES = ("variable", "fixed")
COLUMNS = ["policy", "drop ratio", "completion time, min", "SJS efficiency"]
GAINS = (
    ("completion time gain", "baseline / elastic, with a queue"),
    ("drop ratio gain", "baseline - elastic, without one"),
    ("SJS efficiency gain", "elastic / baseline, with a queue"),
)


def _gain(elastic: Figures, baseline: Figures) -> tuple[float, float, float]:
    """As `GAINS`; drop ratios are subtracted, as none may be dropped."""
    efficiency = elastic.efficiency / baseline.efficiency
    return baseline.minutes / elastic.minutes, baseline.drops - elastic.drops, efficiency


def _others(part: Part, seeds: range) -> None:
    """The gains at 40 devices under other choices."""
    rows, off = [], []
    wanted = _gain(PUBLISHED[40].elastic, PUBLISHED[40].baseline)
    for name, choice in OTHERS.items():
        lines = {batch: [_figures(40, PUBLISHED[40].minutes, seed, batch, choice) for seed in seeds] for batch in MODES}
        gains = np.median([_gain(*pair) for pair in zip(*lines.values())], axis=0).tolist()
        told = (_told([getattr(line, what) for line in lines[batch]]) for what in FIELDS for batch in MODES)
        rows.append([name, *told, *(f"{gain:.2f}" for gain in gains)])
        far = [
            f"{what} {gain:.2f}" for (what, _), gain, paper in zip(GAINS, gains, wanted) if not _is_near(gain, paper)
        ]
        off += [f"{name} ({', '.join(far)})"] if far else []
    columns = ["choice", *(f"{what}, {mode}" for what in COLUMNS[1:] for mode in ("elastic", "baseline"))]
    part.table(f"40 devices, median of {len(seeds)} seeds", columns + [name for name, _ in GAINS], rows)
    if off:
        paper = ", ".join(f"{what} {gain:.2f}" for (what, _), gain in zip(GAINS, wanted))
        part.note(f"more than {WITHIN:.0%} off the paper's gains ({paper}) at 40 devices: {'; '.join(off)}")


FIELDS = ("drops", "minutes", "efficiency")


def _ends_of_the_range(part: Part, seeds: range) -> None:
    """Jobs of one category on 40 devices for 4 hours, without a queue (IV-A, IV-D, IV-E)."""
    rows = []
    for model in published_profiles():
        for load in LOADS:
            spec = BatchJobs(240 * MINUTE, load, "high", mix={model: 1.0})
            done = {
                batch: [_simulated(spec, 40, seed, {"batch": batch, "queue": False}).finished.sum() for seed in seeds]
                for batch in (*MODES, "max", "min")
            }
            rows.append([model, f"{load:g}", *(f"{np.median(counts):.0f}" for counts in done.values())])
    columns = ["jobs", "devices' work that comes", "elastic", "Random-BS", "Max-BS", "Min-BS"]
    part.table(f"Jobs done of one category on 40 devices, median of {len(seeds)} seeds", columns, rows)


LOADS = (K_MAX / 4, K_MAX, 40)
"""Their low and high rate of arrivals as the text has them, and as much work as the devices can do."""


def _best_fixed(part: Part, seeds: range) -> None:
    """The mean completion time with variable batches beside each way to fix them, not only the paper's random one."""
    rows = []
    elastic = {model: 1.0 for model, profile in published_profiles().items() if profile.limit > 1}
    cases = [(1.0, None), (2.0, None), (1.0, elastic)]
    for fits, mix in cases:
        for load in PARTS_OF_LOAD:
            spec = BatchJobs(PUBLISHED[40].minutes * MINUTE, 40 * load, mix=mix)
            minutes = {
                batch: [
                    float(_simulated(spec, 40, seed, {"batch": batch}, Choice(fits=fits)).jct.mean()) / MINUTE
                    for seed in seeds
                ]
                for batch in (*MODES, "max", "min")
            }
            best = [min(fixed) / own for own, *fixed in zip(*minutes.values())]
            times = (f"{np.median(each):.0f}" for each in minutes.values())
            jobs = "all" if mix is None else "elastic"
            rows.append([jobs, f"{fits:g}", f"{load:g}", *times, _told(best, spread=True)])
    times_of = ["elastic, min", "Random-BS", "Max-BS", "Min-BS"]
    columns = ["jobs", "samples fit, times", "load", *times_of, "best fixed / elastic"]
    part.table(f"40 devices with a queue, median of {len(seeds)} seeds", columns, rows)


PARTS_OF_LOAD = (1.0, 0.5, 0.25)
"""Of as much work as all devices do; the last is their high rate, k_max x lambda (IV-A)."""


def _figures(size: int, minutes: float, seed: int, batch: str, choice: Choice) -> Figures:
    """A line of the tables, of two simulations: without and with a queue."""
    spec = BatchJobs(minutes * MINUTE, size)
    dropping, waiting = (
        _simulated(spec, size, seed, {"queue": queue, "batch": batch, **choice.parameters}, choice)
        for queue in (False, True)
    )
    return Figures(float(dropping.dropped.mean()), float(waiting.jct.mean()) / MINUTE, waiting.sjs_efficiency)


def _simulated(
    spec: BatchJobs, size: int, seed: int, parameters: dict[str, Any], choice: Choice = AS_ASSUMED
) -> SimulationOutcome:
    """On machines of 2 devices, as theirs."""
    profiles = published_profiles(choice.network, choice.fits)
    machine = ProfiledMachine(Cluster((2,) * (size // 2)), profiles, Costs(restart=choice.restart))
    return Simulation(batch_trace(spec, profiles, seed), machine, policy("throughput", **parameters)).run()


def _row(name: str, lines: list[Figures]) -> list[str]:
    return [name, *(_told([getattr(line, what) for line in lines], len(lines) > 1) for what in FIELDS)]


def _told(values: list[float], spread: bool = False) -> str:
    """The median, and how far the seeds lie apart."""
    text = f"{np.median(values):.3f}"
    return f"{text} ({min(values):.3f} .. {max(values):.3f})" if spread else text
