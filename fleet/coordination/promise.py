"""What became of a deadline that was promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

LEAST_LATENESS = 0.01
"""Seconds by which a job has to be late for its deadline before that is told: fewer would be shown as none."""


@dataclass(frozen=True)
class Promise:
    """What became of a deadline that was promised.

    Attributes:
        status: `made`; `late` once it is known that it cannot be kept; `kept` or `missed` in the end.
        deadline: seconds of the run, by the clock of the session that says so.
        end: when the job was done, or, while it is late, can be done at the earliest; None: not known, or never.
    """

    status: Literal["made", "late", "kept", "missed"]
    deadline: float
    end: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the promise as run.json holds it."""
        return {"status": self.status, "deadline": self.deadline, "end": self.end}
