"""How many samples a run read, made and prepared."""

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
        made: made for lanes, whoever reads them.
        prepared: read and decoded for that; the others were kept from before.
    """

    read: Mapping[str, int] = field(default_factory=dict)
    made: Mapping[str, int] = field(default_factory=dict)
    prepared: Mapping[str, int] = field(default_factory=dict)

    def plus(self, read: Mapping[str, int], made: Mapping[str, int], prepared: Mapping[str, int]) -> SampleCounts:
        """These and further ones."""
        return SampleCounts(_sum(self.read, read), _sum(self.made, made), _sum(self.prepared, prepared))

    @property
    def per_read(self) -> float | None:
        """Samples prepared for each one read; None where none was made or none read."""
        read = sum(self.read.values())
        return sum(self.prepared.values()) / read if read and any(self.made.values()) else None

    def to_json(self) -> dict[str, Any]:
        """What run.json says of them: all together, and by data set."""
        kinds = {"read": self.read, "made": self.made, "prepared": self.prepared}
        names = sorted({name for counts in kinds.values() for name in counts})
        of_data = {name: {kind: counts.get(name, 0) for kind, counts in kinds.items()} for name in names}
        return {**{kind: sum(counts.values()) for kind, counts in kinds.items()}, "of_data": of_data}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return dict(sorted(total.items()))
