"""What is fuzzed: readers of what people and disks bring. Each takes its input, or refuses it with its own errors."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Edit = tuple[int, int, bytes]
"""Where (a position, or a value's number), what: so many bytes, or VALUE or OTHER; and what instead."""

VALUE, OTHER = (
    -1,
    -2,
)  # a value becomes the piece; becomes another value of the text, whose number the piece's length is
CUTS = (VALUE, VALUE, VALUE, OTHER, OTHER, 0, 1, 2, 8, 40)
_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+.\w]+')
PIECES: tuple[bytes, ...] = (
    *(b"null", b"true", b"false", b"0", b"-1", b"1", b"1.5", b"1e999", b"-1e999", b"NaN", b".nan", b"1e-320", b"2"),
    *(b"99999999999999999999999", b"9223372036854775808", b"9" * 400, b"0x" + b"f" * 300, b"1" + b"0" * 5000),
    *(b'""', b'"x"', b'"\\ud800"', b"\xff", b"\x00", b"[]", b"{}", b"[[]]", b'{"x": null}', b"[null]", b'["x"]'),
    *(b",", b":", b"\n", b"{", b"}", b"[", b"]", b'"', b"'", b"  ", b"- ", b"&a ", b"*a", b"<<: *a", b"!!int ", b"|"),
    *(b"{index}", b"2026-01-01 00:00:00", b"\xe2\x80\xa8", b"=", b".", b"..", b"%", b"#", b"---", b"[" * 300, b"\\"),
)


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        name: how it is called.
        corpus: makes examples that it takes.
        read: reads one; the folder is empty, and its own.
        refusals: the errors that say what is wrong with an example, to people.
    """

    name: str
    corpus: Callable[[Path], Sequence[bytes]]
    read: Callable[[bytes, Path], Any]
    refusals: tuple[type[Exception], ...]


def edited(content: bytes, edits: Sequence[Edit]) -> bytes:
    """The content with these edits, one after the other."""
    for place, cut, piece in edits:
        values = list(_VALUE.finditer(content)) if cut < 0 else []
        if values:
            start, end = values[place % len(values)].span()
        else:
            start = place % (len(content) + 1)
            end = start + max(0, cut)
        if values and cut == OTHER:
            piece = values[(place // len(values) + len(piece)) % len(values)][0]
        content = content[:start] + piece + content[end:]
    return content


def drawn_edits(draw: random.Random) -> list[Edit]:
    """Some edits, at random."""
    return [
        (draw.randrange(1 << 20), draw.choice(CUTS), draw.choice((*PIECES, b"", b"")))
        for _ in range(draw.choice((1, 1, 2, 3)))
    ]


def all_targets() -> Iterator[Target]:
    """Every target there is."""
    from tests.faults.fuzz import binary_targets, field_targets, journal_targets, table_targets, text_targets

    for module in (text_targets, journal_targets, binary_targets, table_targets, field_targets):
        yield from module.TARGETS


def target_named(name: str) -> Target:
    """The target of that name. LookupError if there is none."""
    return next(target for target in all_targets() if target.name == name)
