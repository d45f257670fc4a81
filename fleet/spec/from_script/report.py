"""What is known of a script: keys of a spec, what to tell, and what is in the way of a spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TASK = "write a task class (docs/how-to/port-a-ddp-script.md)"
"""What to do where a spec's own keys do not suffice."""


@dataclass
class Report:
    """Filled while a script's first step is read.

    Attributes:
        data: the section of its data set.
        job: the keys of its job.
        functions: what a function of the file beside the spec gives -> the text of its body.
        told: what a reader of the spec should know.
        problems: what a spec cannot say, each with its mend.
    """

    data: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Say something to whoever reads the spec."""
        self.told.append(text)

    def fail(self, problem: str, mend: str) -> None:
        """Say what is in the way, and what to do."""
        self.problems.append(f"{problem}; {mend}")
