"""Whether networks at unlike places of one stream read one lane: pure, no clock and no processes.

In one lane the samples are made once, but the lane begins where the rearmost stands, and the foremost waits until it
has caught up. With a lane each nobody waits, but preprocessors make the samples twice. `joins` compares the
device-seconds; docs/explanation/data-path.md derives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby


@dataclass(frozen=True)
class Reader:
    """A network, or several that read one lane.

    Attributes:
        place: where the next sample stands in the stream.
        end: place at which it reads no more, over all epochs that it will read; counted from where `place` is.
        devices: w, what stands still while it waits.
        rate: r, samples/s of the stream that its devices train if samples are never late; None: nobody knows.

    Raises:
        ValueError: no devices, or a rate that is not above 0.
    """

    place: float
    end: float
    devices: float = 1.0
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.devices <= 0 or (self.rate is not None and self.rate <= 0):
            rule = "a reader has devices, and a rate above 0; None stands for one that nobody knows"
            raise ValueError(f"{self.devices} devices, {self.rate} samples/s: {rule}")


@dataclass(frozen=True)
class PreparingCosts:
    """Costs of making samples.

    Attributes:
        first: c1, core-seconds for a sample of the foremost reader's stream.
        second: c2, for one of the rearmost's, if that has a lane of its own: less where the first's samples are kept.
        cores: C, core-seconds of preprocessors in each second.

    Raises:
        ValueError: one of them is not above 0.
    """

    first: float
    second: float
    cores: float

    def __post_init__(self) -> None:
        if min(self.first, self.second, self.cores) <= 0:
            raise ValueError(f"{self}: costs and cores are above 0")


def joins(one: Reader, other: Reader, costs: PreparingCosts | None) -> bool:
    """Say whether two readers of one stream share a lane.

    With 1 the foremost, at place f until e1, 2 the rearmost, at place b until e2, and v = min(r, C / c) the pace of
    each that has the preprocessors for itself:

        phi = max(1, (r1 c1 + r2 c2) / C) / max(1, r1 c1 / C)          how much longer a sample takes the first beside
                                                                       a second lane
        w1 (f - b) v1 / v2                                             what sharing costs: the first waits,
          + w1 (1 - min(1, r2 / r1)) (min(e1, e2) - f) [r1 c1 <= C]    and has the pace of a slower second, unless
                                                                       preprocessors set the pace anyway
          <= (w1 + w2) (phi - 1) min(e1 - f, e2 - b)                   what a lane each costs both while both read

    in samples at v1, times devices. Readers at one place always share. Where a rate or the costs are not known, they
    share if f - b <= min(e1, e2) - f: then phi is taken for 2, and the foremost alone is asked.

    Args:
        one, other: in any order.
        costs: what their samples cost; None: nobody knows.
    """
    second, first = sorted((one, other), key=lambda reader: reader.place)
    lag, left = first.place - second.place, min(one.end, other.end) - first.place
    if not lag:
        return True
    if costs is None or first.rate is None or second.rate is None:
        return lag <= left
    if left <= 0:
        return False  # they never read the same sample
    alone, beside = first.rate * costs.first, second.rate * costs.second
    longer = max(costs.cores, alone + beside) / max(costs.cores, alone) - 1
    slower = 1 - min(1, second.rate / first.rate) if alone <= costs.cores else 0
    paces = min(first.rate, costs.cores / costs.first) / min(second.rate, costs.cores / costs.second)
    both = min(first.end - first.place, second.end - second.place)
    return first.devices * (lag * paces + slower * left) <= (first.devices + second.devices) * longer * both


def lanes(readers: Sequence[Reader], costs: PreparingCosts | None, most: int) -> list[list[int]]:
    """Divide readers of one stream among lanes: neighbours share where `joins` says so, or where lanes run short.

    Args:
        readers: all that stand at one place count as one.
        costs: see `joins`.
        most: lanes that there are, 1 or more.

    Returns:
        The indices of each lane's readers, the foremost lane first.
    """
    order = sorted(range(len(readers)), key=lambda index: -readers[index].place)
    found: list[tuple[Reader, list[int]]] = []
    for _, group in groupby(order, key=lambda index: readers[index].place):
        members = list(group)
        party = _as_one_reader([readers[index] for index in members])
        if found and joins(found[-1][0], party, costs):
            found[-1] = _as_one_reader([found[-1][0], party]), found[-1][1] + members
        else:
            found.append((party, members))
    while len(found) > most:
        gaps = [ahead.place - behind.place for (ahead, _), (behind, _) in zip(found, found[1:])]
        nearest = gaps.index(min(gaps))
        (ahead, some), (behind, others) = found[nearest : nearest + 2]
        found[nearest : nearest + 2] = [(_as_one_reader([ahead, behind]), some + others)]
    return [members for _, members in found]


def _as_one_reader(readers: Sequence[Reader]) -> Reader:
    """Return readers of one lane as one: from the rearmost's place on, as slow as the slowest."""
    rates = [reader.rate for reader in readers if reader.rate is not None]
    return replace(
        readers[0],
        place=min(reader.place for reader in readers),
        end=max(reader.end for reader in readers),
        devices=sum(reader.devices for reader in readers),
        rate=min(rates) if len(rates) == len(readers) else None,
    )
