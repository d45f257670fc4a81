"""Who made which object, with which arguments, while a script runs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

LIBRARY = os.path.dirname(os.__file__)
"""The folder of Python's own modules."""

MOST = 200_000  # objects that are remembered
_COLLECTIONS = (tuple, list, dict)
_TORCH = os.path.dirname(torch.__file__)
_OF_TORCH = ("random_split",)  # functions of torch that are looked into


@dataclass(frozen=True)
class Making:
    """A call that gave an object.

    Attributes:
        maker: the class, or the code of the function, that was called.
        module, name: where the maker is defined, and its name there.
        arguments: by name, as they were when the call began.
        positional: its `*arguments` took these.
        line: the line of the script from which it comes, 0: none.
        place: which element of what the function gave is the object; None: all of it.
    """

    maker: Any
    module: str
    name: str
    arguments: Mapping[str, Any]
    positional: tuple[Any, ...] = ()
    line: int = 0
    place: int | str | None = None


@dataclass
class Makings:
    """Remembers calls that gave objects, as a profile function sees them.

    Attributes:
        script: the file whose lines are told.
        made: by an object's id, its constructor's call.
        given: by an object's id, the functions that returned it, from the inside out.
        scalars: by its id, the function that returned a single number, such as a loss.
    """

    script: str
    made: dict[int, Making] = field(default_factory=dict)
    given: dict[int, list[Making]] = field(default_factory=dict)
    scalars: dict[int, Making] = field(default_factory=dict)
    _kept: dict[int, Any] = field(default_factory=dict)  # so that no id is used again
    _begun: dict[FrameType, tuple[dict[str, Any], tuple[Any, ...]]] = field(default_factory=dict)
    _followed: dict[CodeType, bool] = field(default_factory=dict)

    def called(self, frame: FrameType) -> None:
        """A Python function begins."""
        code = frame.f_code
        if code.co_name == "__init__":
            self._constructed(frame, code)
        elif self._follows(code):
            self._begun[frame] = _arguments(frame)

    def returned(self, frame: FrameType, value: Any) -> None:
        """A Python function has given `value`."""
        begun = self._begun.pop(frame, None)
        if begun is None or value is None:
            return
        code = frame.f_code
        module = str(frame.f_globals.get("__name__", ""))
        making = Making(code, module, code.co_name, *begun, self.line_of(frame))
        if isinstance(value, torch.Tensor):
            if value.ndim == 0:
                self.scalars[id(value)] = making
            return
        for place, part in _parts(value):
            if _is_part(part) and len(self._kept) < MOST:
                self._kept[id(part)] = part
                self.given.setdefault(id(part), []).append(replace(making, place=place))

    def constructor(self, thing: Any) -> Making | None:
        """The call that made an object; None: nobody saw it."""
        return self.made.get(id(thing))

    def functions(self, thing: Any) -> list[Making]:
        """The functions that gave an object, from the inside out."""
        return self.given.get(id(thing), [])

    def things(self, kind: Any) -> Iterator[Any]:
        """All remembered objects of a type or of one of several, in the order in which they were made."""
        return (thing for thing in self._kept.values() if isinstance(thing, kind))

    def line_of(self, frame: FrameType | None) -> int:
        """The script's line from which a call comes; 0: from none."""
        while frame is not None and frame.f_code.co_filename != self.script:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lineno

    def _constructed(self, frame: FrameType, code: CodeType) -> None:
        if not code.co_argcount:
            return
        thing = frame.f_locals.get(code.co_varnames[0])
        if id(thing) in self.made or not _is_part(thing) or len(self._kept) >= MOST:
            return  # a base class's __init__, or nothing to train with
        names, positional = _arguments(frame)
        kind = type(thing)
        del names[code.co_varnames[0]]
        self._kept[id(thing)] = thing
        self.made[id(thing)] = Making(
            kind, kind.__module__, kind.__qualname__, names, positional, self.line_of(frame.f_back)
        )

    def _follows(self, code: CodeType) -> bool:
        """Whether a function can be what makes something: torch's and Python's own are not looked into."""
        known = self._followed.get(code)
        if known is None:
            file = code.co_filename
            pythons = file.startswith(LIBRARY + os.sep) and "-packages" not in file
            inside = pythons or file.startswith((_TORCH + os.sep, "<")) or code.co_name.startswith("<")
            known = self._followed[code] = not inside or code.co_name in _OF_TORCH
        return known


def _arguments(frame: FrameType) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """What a function that begins was called with."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    names = {name: values[name] for name in code.co_varnames[:count] if name in values}
    positional: tuple[Any, ...] = ()
    if code.co_flags & inspect.CO_VARARGS:
        positional = tuple(values.get(code.co_varnames[count], ()))
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        names |= values.get(code.co_varnames[count], {})
    return names, positional


def _parts(value: Any) -> Iterator[tuple[int | str | None, Any]]:
    yield None, value
    if type(value) in _COLLECTIONS and len(value) <= 16:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        yield from ((place, part) for place, part in pairs if isinstance(place, (int, str)))


def _is_part(thing: Any) -> bool:
    """Whether an object can be a part of training, such as a network, a transform or a configuration."""
    kind = type(thing)
    return kind.__module__.partition(".")[0] not in sys.stdlib_module_names and not issubclass(
        kind, (torch.Tensor, np.ndarray)
    )
