"""What reading a script gave: a spec's values, the file of parts, and words about both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Found:
    """What is known of a script or a package; plain values, handed over as JSON.

    Attributes:
        data: the sections of data sets, by name.
        jobs: the jobs.
        seed: the seed.
        parts: the text of the file of parts; None: the spec needs none.
        told: what a reader of the spec should know.
        problems: what a spec cannot say, each with its mend.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    jobs: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0
    parts: str | None = None
    told: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Write all of it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Found:
        """Back from JSON."""
        values: dict[str, Any] = json.loads(text)
        return cls(**values | {name: tuple(values[name]) for name in ("jobs", "told", "problems")})
