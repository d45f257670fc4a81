"""What a person asks of a run directory that it cannot give."""

from __future__ import annotations


class HarvestError(ValueError):
    """A person can mend this; the text says the mistake and the mend."""
