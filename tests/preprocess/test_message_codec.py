"""Messages as bytes: each comes back as what it was, and nothing else is taken for one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from preprocess.sharing.message_codec import MessageCodec


@dataclass(frozen=True)
class Pairs:
    values: tuple[tuple[int, ...], ...]
    text: str = ""


@dataclass(frozen=True)
class Nothing:
    """A message whose name says all."""


CODEC: MessageCodec[Pairs | Nothing] = MessageCodec((Pairs, Nothing))


@pytest.mark.parametrize("message", [Pairs(((1, 2), ()), "two\nlines"), Nothing()])
def test_a_message_comes_back(message: Pairs | Nothing) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"Else\n{}", b"\xff\n{}", b"Nothing", b"Pairs\n{}", b'Pairs\n{"values": [["a"]]}']
)
def test_what_is_none_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="name|Pairs|Nothing|utf-8"):
        CODEC.decode(text)


def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"b'Else' is no message's name; there are Pairs, Nothing"):
        CODEC.decode(b"Else\n{}")
