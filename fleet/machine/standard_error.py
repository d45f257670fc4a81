"""What fleet says on standard error, beside what its ranks and their libraries write there."""

from __future__ import annotations

import sys
from contextlib import suppress


def tell(text: str, end: str = "\n") -> None:
    """Print `text` on standard error, as fleet's own word; not where nobody can read it any more.

    It has no control characters but line feeds: names that stand in files steer no terminal.
    """
    text = "".join(character if character.isprintable() or character == "\n" else " " for character in text)
    with suppress(OSError):
        print(f"fleet: {text}", file=sys.stderr, end=end, flush=True)
