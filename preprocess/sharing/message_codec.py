"""Messages as bytes: what processes say to each other travels as JSON, and nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Generic, TypeVar

from pydantic import TypeAdapter

M = TypeVar("M")


class MessageCodec(Generic[M]):
    """Writes and reads messages: the name of the message's class in one line, then its fields.

    Args:
        kinds: the dataclasses of all messages.
    """

    def __init__(self, kinds: Iterable[type[M]]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}

    def encode(self, message: M) -> bytes:
        """Return the message as UTF-8: numbers may be infinite or NaN, half a surrogate pair becomes "?"."""
        name = type(message).__name__
        fields = json.dumps(self._adapters[name].dump_python(message, mode="json"), ensure_ascii=False)
        return name.encode() + b"\n" + fields.encode(errors="replace")

    def decode(self, text: bytes) -> M:
        """Return the message that `text` holds.

        Raises:
            ValueError: it is none of ours.
        """
        name, _, fields = text.partition(b"\n")
        adapter = self._adapters.get(name.decode())
        if adapter is None:
            raise ValueError(f"{name!r} is no message's name; there are {', '.join(self._kinds)}")
        return adapter.validate_json(fields)

    @cached_property
    def _adapters(self) -> dict[str, TypeAdapter[M]]:
        """Made at the first message, as they take their time."""
        return {name: TypeAdapter(kind) for name, kind in self._kinds.items()}
