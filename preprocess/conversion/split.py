"""A split of the data that is converted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from preprocess.sources.source import Source, open_source


@dataclass(frozen=True)
class Split:
    """One split of the converted data.

    Attributes:
        name: "train" or "held_out".
        source, arguments: what `open_source` is given.
    """

    name: str
    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Source:
        """Open the source of its samples. Raises SourceError."""
        return open_source(self.source, self.arguments)
