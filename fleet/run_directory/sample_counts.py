"""How many samples a run read, laid into lanes and made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SampleCounts:
    """Samples by data set.

    Attributes:
        read: handed to networks; what two networks read counts twice.
        laid: laid into lanes, whoever reads them.
        made: read from the data and prepared for that; the others were kept from before.
    """

    read: Mapping[str, int] = field(default_factory=dict)
    laid: Mapping[str, int] = field(default_factory=dict)
    made: Mapping[str, int] = field(default_factory=dict)

    def plus(self, read: Mapping[str, int], laid: Mapping[str, int], made: Mapping[str, int]) -> SampleCounts:
        """Add further samples."""
        return SampleCounts(_sum(self.read, read), _sum(self.laid, laid), _sum(self.made, made))

    @property
    def per_read(self) -> float | None:
        """Samples made for each one read; None where none was laid or none read."""
        read = sum(self.read.values())
        return sum(self.made.values()) / read if read and any(self.laid.values()) else None

    def to_json(self) -> dict[str, Any]:
        """What run.json says of them: all together, and by data set."""
        kinds = {"read": self.read, "laid": self.laid, "made": self.made}
        names = sorted({name for counts in kinds.values() for name in counts})
        of_data = {name: {kind: counts.get(name, 0) for kind, counts in kinds.items()} for name in names}
        return {**{kind: sum(counts.values()) for kind, counts in kinds.items()}, "of_data": of_data}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return dict(sorted(total.items()))
