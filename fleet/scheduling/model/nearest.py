"""What somebody who wrote an unknown name could have meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: object, candidates: Iterable[str], likeness: float = 0.55) -> str | None:
    """The candidate most like `word`, or None if none is much like it."""
    wanted = str(word)
    names = sorted(set(candidates))
    plain = {_plain(name): name for name in reversed(names)}
    close = get_close_matches(_plain(wanted), plain, n=1, cutoff=likeness)
    if close:
        return plain[close[0]]
    partial = [name for name in names if len(wanted) > 2 and _plain(wanted) in _plain(name)]
    return min(partial, key=len) if partial else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "") or name
