"""Which call made which object while a script runs, and that call as a spec says it, or as Python text."""

from __future__ import annotations

import enum
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import CodeType, FrameType, FunctionType
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
class MakerCall:
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
class Provenance:
    """Remembers calls that gave objects, as a profile function sees them.

    Attributes:
        script: the file whose lines are told.
        made: by an object's id, its constructor's call.
        given: by an object's id, the functions that returned it, from the inside out.
        scalars: by its id, the function that returned a single number, such as a loss.
    """

    script: str
    made: dict[int, MakerCall] = field(default_factory=dict)
    given: dict[int, list[MakerCall]] = field(default_factory=dict)
    scalars: dict[int, MakerCall] = field(default_factory=dict)
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
        making = MakerCall(code, module, code.co_name, *begun, self.line_of(frame))
        if isinstance(value, torch.Tensor):
            if value.ndim == 0:
                self.scalars[id(value)] = making
            return
        for place, part in _parts(value):
            if _is_part(part) and len(self._kept) < MOST:
                self._kept[id(part)] = part
                self.given.setdefault(id(part), []).append(replace(making, place=place))

    def constructor(self, thing: Any) -> MakerCall | None:
        """The call that made an object; None: nobody saw it."""
        return self.made.get(id(thing))

    def functions(self, thing: Any) -> list[MakerCall]:
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
        self.made[id(thing)] = MakerCall(
            kind, kind.__module__, kind.__qualname__, names, positional, self.line_of(frame.f_back)
        )

    def _follows(self, code: CodeType) -> bool:
        """Return whether a function can be what makes something: torch's and Python's own are not looked into."""
        known = self._followed.get(code)
        if known is None:
            file = code.co_filename
            pythons = file.startswith(LIBRARY + os.sep) and "-packages" not in file
            inside = pythons or file.startswith((_TORCH + os.sep, "<")) or code.co_name.startswith("<")
            known = self._followed[code] = not inside or code.co_name in _OF_TORCH
        return known


def _arguments(frame: FrameType) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return what a function that begins was called with."""
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
    """Return whether an object can be a part of training, such as a network, a transform or a configuration."""
    kind = type(thing)
    return kind.__module__.partition(".")[0] not in sys.stdlib_module_names and not issubclass(
        kind, (torch.Tensor, np.ndarray)
    )


MOST_ELEMENTS = 64  # of a list that is written down
LONGEST = 100  # characters of a line
MAIN = "__main__"


class Unwritten(ValueError):
    """An object that no call of names and plain values makes."""


@dataclass(frozen=True)
class Written:
    """A call as a spec says it: `module:Name` and plain arguments."""

    name: str
    arguments: Mapping[str, Any]

    def to_spec(self) -> Any:
        """The call as a value of a spec."""
        return {"name": self.name, "arguments": dict(self.arguments)} if self.arguments else self.name


@dataclass
class Calls:
    """Writes down how objects of a watched script are made.

    Attributes:
        provenance: what was seen.
        module: the name under which a spec imports the script.
        imports: modules that texts written so far need.
        own: names of the script that texts written so far need; named: those that a spec names.
    """

    provenance: Provenance
    module: str
    imports: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)

    def candidates(self, thing: Any) -> Iterator[Written]:
        """All calls with plain arguments that gave an object: of its class, then of functions, the outermost first."""
        made = self.provenance.constructor(thing)
        functions = [each for each in reversed(self.provenance.functions(thing)) if each.place is None]
        for making in (*([made] if made else []), *functions):
            try:
                yield self.written(making)
            except Unwritten:
                continue

    def written(self, making: MakerCall) -> Written:
        """A call as a spec says it. Unwritten: its arguments are no plain values, or nothing imports its name."""
        if making.positional or making.place is not None:
            raise Unwritten(f"{making.name} takes arguments without names")
        arguments = {name: plain(value) for name, value in changed_arguments(making).items()}
        module, name = self.address(making)
        if module == MAIN:
            self.named.add(name.partition(".")[0])
        return Written(f"{self.module if module == MAIN else module}:{name}", arguments)

    def text(self, thing: Any) -> str:
        """Python text that makes an object again. Unwritten: none does."""
        if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes)):
            return repr(thing)
        if isinstance(thing, PurePath):
            return repr(str(thing))
        if isinstance(thing, torch.Generator):
            self.imports.add("torch")
            return f"torch.Generator().manual_seed({thing.initial_seed()})"
        if isinstance(thing, (torch.dtype, torch.device)):
            self.imports.add("torch")
            return str(thing) if isinstance(thing, torch.dtype) else f"torch.device({str(thing)!r})"
        if isinstance(thing, (list, tuple, dict, set)) and type(thing).__module__ == "builtins":
            return self._collection(thing)
        if isinstance(thing, enum.Enum):
            return f"{self._named(type(thing))}.{thing.name}"
        if isinstance(thing, FunctionType) and thing.__name__ == "<lambda>":
            raise Unwritten("a lambda, which nothing can import")
        if isinstance(thing, (type, FunctionType)):
            return self._named(thing)
        return next(self.texts(thing))

    def address(self, making: MakerCall) -> tuple[str, str]:
        """Return where a maker is found: module and name. Unwritten: nothing imports it."""
        name = making.name
        if isinstance(making.maker, CodeType):
            holder = sys.modules.get(making.module)
            found = getattr(holder, name, None)
            if not callable(found) or getattr(inspect.unwrap(found), "__code__", None) is not making.maker:
                raise Unwritten(f"{name}() is defined where nothing can import it")
        elif _looked_up(making.module, name) is not making.maker:
            raise Unwritten(f"{name} is defined where nothing can import it")
        return _public(making.module, name), name

    def made(self, text: str) -> Any:
        """Return what a text makes, without memory and with other random numbers."""
        names = dict(vars(sys.modules[MAIN]))
        for module in sorted(self.imports):
            names[module.partition(".")[0]] = __import__(module)
        with torch.random.fork_rng(), torch.device("meta"):
            return eval(text, names)

    def texts(self, thing: Any) -> Iterator[str]:
        """All calls that gave an object, as Python text: of its class, then of functions, the outermost first.

        Raises:
            Unwritten: after them, if there were none.
        """
        why, found = f"a {type(thing).__name__}, of which no call was seen", False
        made = self.provenance.constructor(thing)
        for making in (*([made] if made else []), *reversed(self.provenance.functions(thing))):
            imports, own = set(self.imports), set(self.own)
            try:
                text = self._call_text(making)
            except Unwritten as problem:
                why = str(problem)
            else:
                found = True
                yield text
            self.imports, self.own = imports, own  # the text that was taken has ended this already
        if not found:
            raise Unwritten(why)

    def _call_text(self, making: MakerCall) -> str:
        module, name = self.address(making)
        given = [self.text(value) for value in making.positional]
        changed = changed_arguments(making)
        given += [f"{name}={self.text(value)}" for name, value in changed.items()]
        if making.name == "random_split" and "generator" not in changed:  # each process must split alike
            self.imports.add("torch")
            given.append("generator=torch.Generator().manual_seed(0)")
        call = laid_out(self._name(module, name), given)
        return call if making.place is None else f"{call}[{making.place!r}]"

    def _collection(self, thing: Any) -> str:
        if len(thing) > MOST_ELEMENTS:
            raise Unwritten(f"a {type(thing).__name__} of {len(thing)} elements")
        if isinstance(thing, dict):
            return "{" + ", ".join(f"{self.text(key)}: {self.text(value)}" for key, value in thing.items()) + "}"
        inner = ", ".join(self.text(each) for each in thing)
        if isinstance(thing, tuple):
            return f"({inner}{',' if len(thing) == 1 else ''})"
        return f"[{inner}]" if isinstance(thing, list) else f"{{{inner}}}" if thing else "set()"

    def _named(self, thing: Any) -> str:
        if _looked_up(thing.__module__, thing.__qualname__) is not thing:
            raise Unwritten(f"{thing.__qualname__}, which nothing can import")
        return self._name(_public(thing.__module__, thing.__qualname__), thing.__qualname__)

    def _name(self, module: str, name: str) -> str:
        """Return how a text calls something of a module; the text's file imports that."""
        if module == "builtins":
            return name
        if module == MAIN:
            self.own.add(name.partition(".")[0])
            return name
        self.imports.add(module)
        return f"{module}.{name}"


def laid_out(name: str, given: Sequence[str]) -> str:
    """Text of a call: in one line, or with a line for each argument where that would be long."""
    line = f"{name}({', '.join(given)})"
    if len(line) <= LONGEST or not given:
        return line
    inner = "".join(f"    {each}".replace("\n", "\n    ") + ",\n" for each in given)
    return f"{name}(\n{inner})"


def plain(value: Any) -> Any:
    """A value as a spec can hold it. Unwritten: it cannot."""
    if value is None or isinstance(value, (bool, int, float, str)) and type(value).__module__ == "builtins":
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value) in (list, tuple) and len(value) <= MOST_ELEMENTS:
        return [plain(each) for each in value]
    if type(value) is dict and len(value) <= MOST_ELEMENTS and all(isinstance(key, str) for key in value):
        return {key: plain(each) for key, each in value.items()}
    raise Unwritten(f"a {type(value).__name__}")


def changed_arguments(making: MakerCall) -> dict[str, Any]:
    """The arguments that differ from their defaults."""
    found = making.maker if isinstance(making.maker, type) else _looked_up(making.module, making.name)
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return dict(making.arguments)
    defaults = {name: each.default for name, each in signature.parameters.items()}
    return {name: value for name, value in making.arguments.items() if not _same(value, defaults.get(name, making))}


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    return type(value) is type(default) and isinstance(value, (bool, int, float, str, tuple)) and value == default


def _looked_up(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _public(module: str, name: str) -> str:
    """The shortest module above or at one that gives the same thing under the same name."""
    found = _looked_up(module, name)
    parts = module.split(".")
    above = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next((each for each in above if _looked_up(each, name) is found), module)
