"""The errors of a conversion."""

from __future__ import annotations

from preprocess.samples.errors import DataSpecError


class ConversionError(DataSpecError):
    """A conversion that was asked for wrongly, or of data that cannot be converted so."""


class ConversionFailure(RuntimeError):
    """A conversion that was begun and could not go on; its finished part is kept."""
