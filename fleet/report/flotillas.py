"""How evenly each flotilla was balanced: the running lengths of its jobs (FLEET, MLSys'20, Table 3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean, pstdev

from fleet.report.history import DeviceSpan, Round, RunHistory


@dataclass(kw_only=True)
class FlotillaRow(Round):
    """One row of the table; times in seconds; `deviation` is the population's standard deviation over its jobs.

    `lengths` says how long each job ran in this flotilla. Jobs that only were planned (the run was cut first) have
    no length, and a flotilla without any length has mean and deviation None.
    """

    label: str
    lengths: Mapping[str, float]
    mean: float | None
    deviation: float | None

    @property
    def gap(self) -> float | None:
        """How far after the bound the policy expected to end, as a share of the bound; None: they are not known."""
        return self.expected / self.bound - 1 if self.bound and self.expected is not None else None

    @property
    def devices(self) -> tuple[int, ...]:
        """All devices of the flotilla."""
        return tuple(sorted({device for devices in self.allocation.values() for device in devices}))


def flotillas(history: RunHistory) -> tuple[FlotillaRow, ...]:
    """The flotillas of the run, in order; a number that came back in a later session is labelled with its session."""
    spans: dict[tuple[int, int], list[DeviceSpan]] = defaultdict(list)
    for span in history.spans:
        spans[span.session, span.round].append(span)
    uses = Counter(flotilla.number for flotilla in history.rounds)
    order = {job: place for place, job in enumerate(history.jobs)}
    for group in spans.values():
        group.sort(key=lambda span: order[span.job])
    return tuple(_flotilla(r, spans[r.session, r.number], uses[r.number] > 1) for r in history.rounds)


def running_lengths(spans: list[DeviceSpan] | tuple[DeviceSpan, ...]) -> dict[str, float]:
    """Seconds that each job ran in `spans`; the devices of one group run at the same time and count once."""
    groups = {(span.job, span.start): span.seconds for span in spans}
    lengths: dict[str, float] = defaultdict(float)
    for (job, _), seconds in groups.items():
        lengths[job] += seconds
    return dict(lengths)


def _flotilla(flotilla: Round, spans: list[DeviceSpan], repeated: bool) -> FlotillaRow:
    lengths = running_lengths(spans)
    held: dict[str, list[int]] = defaultdict(list)
    for span in spans:
        if span.device not in held[span.job]:
            held[span.job].append(span.device)
    label = f"{flotilla.number} (session {flotilla.session})" if repeated else str(flotilla.number)
    allocation = {job: tuple(devices) for job, devices in held.items()} or flotilla.allocation
    return FlotillaRow(
        **vars(replace(flotilla, allocation=allocation)),
        label=label,
        lengths=lengths,
        mean=fmean(lengths.values()) if lengths else None,
        deviation=pstdev(lengths.values()) if lengths else None,
    )
