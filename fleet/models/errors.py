"""What a person asks of a run directory that it cannot give."""

from __future__ import annotations


class ModelsError(ValueError):
    """A person can mend this; the text says the mistake and the mend."""


class RunError(ValueError):
    """A person can mend this; the text says the mistake and the mend."""


class RunLost(RuntimeError):
    """A run ended before it could say how; the text has its last words. Begun again, it goes on."""
