"""What FLEET's Figures 5 and 6 and its Tables 3 and 4 show, of ensembles that are calibrated to the totals of Table 4.

Nothing here was fitted but the checkpoints' length, 34 s a flotilla, which Table 4 itself has (see
`benchmarks.simulated.calibrated_ensemble`). The paper prints Figures 5 and 6 without numbers; its text has the range of
Figure 5, and says of Figure 6 that FLEET-G waits least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.simulated.calibrated_ensemble import CHECKPOINT, SIZES, Trained
from benchmarks.simulated.part import Part

Floats = npt.NDArray[np.float64]

GAINS = (1.12, 1.92)
"""Figure 5, from the text: FLEET-G's speed-ups over Baseline, the smallest and the largest of eight sizes."""
FLOTILLAS = ((2067.9, 54.7), (335.6, 48.4), (2291.9, 26.0), (415.5, 51.9), (1072.2, 364.0), (2322.3, 216.0))
"""Table 3: mean and standard deviation of how long the networks of a flotilla run, seconds; on 80 GPUs."""
SCHEDULING = (20.1, 15.8, 14.0, 12.0, 10.1, 9.9, 9.3, 10.2)
TOTALS = np.array([55200.1, 30204.8, 24495.0, 21891.0, 18359.1, 15323.9, 13366.3, 11825.2])
CHECKPOINTS = (1496.0, 1156.0, 986.0, 816.0, 782.0, 680.0, 680.0, 748.0)
"""Table 4, seconds."""


def waiting(run: Trained) -> float:
    """Seconds that a device waits on average from the beginning until the last network is done."""
    return float(run.seconds - run.outcome.held.mean())


def flotilla_lengths(run: Trained, first: int = len(FLOTILLAS)) -> Floats:
    """How long the networks of each of the first flotillas ran: mean and standard deviation, s; shape (first, 2).

    NaN where there were fewer.
    """
    ends = dict(zip(run.outcome.names, run.outcome.end.tolist()))
    found = np.full((first, 2), np.nan)
    for row, one in zip(found, run.planned):
        lengths = [min(ends[job], one.end) - one.start for job in one.allocation]
        row[:] = np.mean(lengths), np.std(lengths)
    return found


def tell_gains(part: Part, speedups: Mapping[str, Floats]) -> None:
    """Figure 5's range: the medians at the size with the smallest gain and at that with the largest.

    Args:
        speedups: by method, of shape (ensembles, sizes).
    """
    rows = []
    for name, found in speedups.items():
        medians = np.median(found, axis=0)
        least, most = int(medians.argmin()), int(medians.argmax())
        told = f"{medians[least]:.2f} ({SIZES[least]} GPUs)", f"{medians[most]:.2f} ({SIZES[most]} GPUs)"
        inside = f"{int(((medians >= GAINS[0]) & (medians <= GAINS[1])).sum())} of {len(SIZES)}"
        paper = f"{GAINS[0]} to {GAINS[1]}" if name == "FLEET-G" else "-"
        rows.append([name, *told, paper, inside if name == "FLEET-G" else "-"])
    columns = ["method", "smallest", "largest", "paper's range", "sizes within it"]
    part.table("Figure 5, predicted: speed-ups over Baseline, medians of the ensembles at a size", columns, rows)


def tell_own(part: Part, seconds: Mapping[str, Floats]) -> None:
    """What fleet's own flotillas make of the same ensembles, beside FLEET-G."""
    printed, own = seconds["FLEET-G"], seconds["flotilla"]
    rows = []
    for i, size in enumerate(SIZES):
        theirs, ours = float(printed[:, i].mean()), float(own[:, i].mean())
        sooner = f"{int((own[:, i] <= printed[:, i]).sum())} of {len(own)}"
        rows.append([size, f"{theirs:,.0f}", f"{ours:,.0f}", f"{ours / theirs - 1:+.0%}", sooner])
    title = "total times of FLEET-G and of fleet's own flotillas, s, means of the ensembles"
    part.table(title, ["GPUs", "FLEET-G", "flotilla", "longer by", "no longer in"], rows)


def tell_waiting(part: Part, waits: Mapping[str, Floats], seconds: Mapping[str, Floats]) -> None:
    """Figure 6: how long a GPU waits, and in how many ensembles FLEET-G waits least of the paper's methods."""
    papers = ("FLEET-G", "FLEET-L", "Baseline", "Homogeneous")
    least = np.min([waits[name] for name in papers], axis=0)
    rows = [
        [size, *(f"{waits[name][:, i].mean():,.0f} ({(waits[name] / seconds[name])[:, i].mean():.0%})"
                 for name in waits), f"{int((waits['FLEET-G'][:, i] <= least[:, i]).sum())} of {len(least)}"]
        for i, size in enumerate(SIZES)
    ]  # fmt: skip
    title = "Figure 6, predicted: seconds that a GPU waits, mean of the ensembles (share of the total time)"
    part.table(title, ["GPUs", *waits, "FLEET-G waits least of the paper's four in"], rows)


def tell_lengths(part: Part, found: Sequence[Floats]) -> None:
    """Table 3's lower part: the first flotillas on 80 GPUs; medians of the ensembles."""
    medians = np.nanmedian(np.array(found), axis=0)
    rows = [
        [number, f"{mean:,.0f} +- {deviation:,.0f}", f"{deviation / mean:.1%}", f"{theirs[0]:,.1f} +- {theirs[1]:,.1f}",
         f"{theirs[1] / theirs[0]:.1%}"]
        for number, ((mean, deviation), theirs) in enumerate(zip(medians.tolist(), FLOTILLAS))
    ]  # fmt: skip
    title = "Table 3, predicted: how long the networks of FLEET-G's first flotillas run on 80 GPUs, s"
    part.table(title, ["flotilla", "length", "deviation by mean", "paper", "deviation by mean"], rows)


def tell_overheads(part: Part, totals: Floats, flotillas: Floats, planning: Floats) -> None:
    """Table 4: what scheduling and checkpoints cost; means of the ensembles, each of shape (sizes,)."""
    rows = []
    for i, size in enumerate(SIZES):
        saved, total = flotillas[i] * CHECKPOINT, totals[i]
        rows.append(
            [size, f"{planning[i]:.2f}", f"{SCHEDULING[i]:.1f}", f"{saved:,.0f}", f"{saved / total:.1%}",
             f"{CHECKPOINTS[i]:,.0f}", f"{CHECKPOINTS[i] / TOTALS[i]:.1%}"]
        )  # fmt: skip
    columns = ["GPUs", "scheduling, s", "paper", "checkpoints, s", "of the total", "paper", "of the total"]
    part.table(f"Table 4: overheads; a flotilla's checkpoint is taken to last {CHECKPOINT} s", columns, rows)
