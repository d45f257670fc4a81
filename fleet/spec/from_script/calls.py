"""Objects -> the calls that make them again: as a spec says them, or as Python text."""

from __future__ import annotations

import enum
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any

import torch

from fleet.spec.from_script.makings import Making, Makings

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
        makings: what was seen.
        module: the name under which a spec imports the script.
        imports: modules that texts written so far need.
        own: names of the script that texts written so far need; named: those that a spec names.
    """

    makings: Makings
    module: str
    imports: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)

    def candidates(self, thing: Any) -> Iterator[Written]:
        """All calls with plain arguments that gave an object: of its class, then of functions, the outermost first."""
        made = self.makings.constructor(thing)
        functions = [each for each in reversed(self.makings.functions(thing)) if each.place is None]
        for making in (*([made] if made else []), *functions):
            try:
                yield self.written(making)
            except Unwritten:
                continue

    def written(self, making: Making) -> Written:
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

    def address(self, making: Making) -> tuple[str, str]:
        """Where a maker is found: module and name. Unwritten: nothing imports it."""
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
        """What a text makes, without memory and with other random numbers."""
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
        made = self.makings.constructor(thing)
        for making in (*([made] if made else []), *reversed(self.makings.functions(thing))):
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

    def _call_text(self, making: Making) -> str:
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
        """How a text calls something of a module; the text's file imports that."""
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


def changed_arguments(making: Making) -> dict[str, Any]:
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
