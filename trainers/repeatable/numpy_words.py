"""The words of NumPy's global generator, read and written where they lie.

NumPy gives out where that is, for code that draws in C: its `get_state` and `set_state` take 60 to 90 us, as they look
at each word by itself, and each virtual worker's turn needs both.
"""

from __future__ import annotations

import ctypes

from numpy.random import MT19937, get_bit_generator, set_bit_generator  # type: ignore[attr-defined]  # NumPy's stubs lack them

_BYTES = 625 * 4
"""Of a Mersenne twister: 624 words, and the place among them."""


def words() -> bytes | None:
    """Return the state but for a normal number that is kept for the next draw; None of another kind of generator."""
    generator = get_bit_generator()
    return ctypes.string_at(generator.ctypes.state_address, _BYTES) if _is_twister(generator) else None


def put(words: bytes) -> bool:
    """Put the generator into a state in which no normal number is kept; no if it is of another kind."""
    generator = get_bit_generator()
    if not _is_twister(generator):
        return False
    ctypes.memmove(generator.ctypes.state_address, words, _BYTES)
    set_bit_generator(generator)  # who sets one has no normal number kept
    return True


def _is_twister(generator: object) -> bool:
    return isinstance(generator, MT19937)
