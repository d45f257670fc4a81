"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """ok: it works. missing: it does not, and runs do without. broken: runs need it."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True)
class Check:
    """name: the thing's name. text: the finding. mend: what to do; "" if it works."""

    name: str
    verdict: Verdict
    text: str
    mend: str = ""
