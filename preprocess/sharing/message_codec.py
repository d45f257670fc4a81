"""Messages as bytes: what processes say to each other travels as JSON, and nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

M = TypeVar("M")


class MessageError(ValueError):
    """Something that is no message, or that no message can hold."""


class MessageCodec(Generic[M]):
    """Writes and reads messages: the name of the message's class in one line, then its fields.

    Args:
        kinds: the dataclasses of all messages.
    """

    def __init__(self, kinds: Iterable[type[M]]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._adapters: dict[str, TypeAdapter[M]] = {}

    @property
    def kinds(self) -> tuple[type[M], ...]:
        """The dataclasses of all messages."""
        return tuple(self._kinds.values())

    def encode(self, message: M) -> bytes:
        """Return the message as UTF-8: numbers may be infinite or NaN, half a surrogate pair becomes "?".

        Raises:
            MessageError: a field holds what JSON cannot.
        """
        name = type(message).__name__
        try:
            plain = self._adapter(name).dump_python(message, warnings=False)  # NumPy scalars are plain below
            fields = json.dumps(plain, ensure_ascii=False, default=_plain)
        except (ValueError, TypeError, RecursionError) as error:
            raise MessageError(f"the message {name} cannot be written: {error}") from error
        return name.encode() + b"\n" + fields.encode(errors="replace")

    def decode(self, text: bytes) -> M:
        """Return the message that `text` holds.

        Raises:
            MessageError: it is none of ours.
        """
        head, _, fields = text.partition(b"\n")
        name = head.decode(errors="replace")
        if name not in self._kinds:
            raise MessageError(f"{head!r} is no message's name; there are {', '.join(self._kinds)}")
        try:
            return self._adapter(name).validate_json(fields)
        except ValueError as error:
            raise MessageError(str(error)) from error

    def _adapter(self, name: str) -> TypeAdapter[M]:
        """Made at the first message of its kind, as it takes its time, and most processes see few kinds."""
        if name not in self._adapters:
            self._adapters[name] = TypeAdapter(self._kinds[name])
        return self._adapters[name]


def _plain(value: Any) -> Any:
    """JSON for NumPy scalars."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} is of type {type(value).__name__}")
