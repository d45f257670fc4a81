"""What fleet says on standard error, beside what its ranks and their libraries write there."""

from __future__ import annotations

import sys


def tell(text: str, end: str = "\n") -> None:
    """Print `text` on standard error, as fleet's own word."""
    print(f"fleet: {text}", file=sys.stderr, end=end, flush=True)
