"""What a person gave a run that it cannot use."""

from __future__ import annotations


class BadInput(ValueError):
    """A person can mend this; the text is all they need."""
