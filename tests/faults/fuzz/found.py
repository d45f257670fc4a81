"""What once escaped from a reader: (target, example)."""

from __future__ import annotations

FOUND: list[tuple[str, bytes]] = [
    ("site", b"\x96"),
    ("site", b"a: !!bool x"),
    ("site", b"[" * 100_000),
    ("site", b"gpus: " + b"9" * 5000),
]
