"""Messages as bytes: each comes back as what it was, and nothing else is taken for one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from preprocess.sharing.messages import MessageCodec


@dataclass(frozen=True)
class Pairs:
    values: tuple[tuple[int, ...], ...]
    text: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Nothing:
    """A message whose name says all."""


CODEC: MessageCodec[Pairs | Nothing] = MessageCodec((Pairs, Nothing))


@pytest.mark.parametrize("message", [Pairs(((1, 2), ()), "two\nlines"), Nothing()])
def test_a_message_comes_back(message: Pairs | Nothing) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300])
def test_any_number_comes_back(value: float) -> None:
    message = Pairs((), numbers={"test_loss": value})
    assert CODEC.decode(CODEC.encode(message)) == message


def test_what_is_no_number_comes_back_as_that() -> None:
    found = CODEC.decode(CODEC.encode(Pairs((), numbers={"test_loss": math.nan})))
    assert isinstance(found, Pairs) and math.isnan(found.numbers["test_loss"])


def test_half_a_surrogate_pair_is_a_question_mark() -> None:
    """Python has such text for names of files that are no UTF-8."""
    assert CODEC.decode(CODEC.encode(Pairs((), "p\udcffx"))) == Pairs((), "p?x")


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"Else\n{}", b"\xff\n{}", b"Nothing", b"Pairs\n{}", b'Pairs\n{"values": [["a"]]}']
)
def test_what_is_none_of_ours_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="name|Pairs|Nothing|utf-8"):
        CODEC.decode(text)


def test_an_unknown_name_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"b'Else' is no message's name; there are Pairs, Nothing"):
        CODEC.decode(b"Else\n{}")
