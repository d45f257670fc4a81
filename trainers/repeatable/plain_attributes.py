"""Numbers, texts and flags that a network's code keeps: each virtual worker has its own, as a DDP process has.

Counters, warm-up flags and sizes that a forward pass works out are such attributes: of the network's modules, of their
classes, globals of their Python modules, and attributes of the task. So are random generators, whose states stand for
them. They are part of a worker's context (EasyScale, SC'23, 3.2) beside its buffers and random states, so they move and
come back with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import partial
from inspect import unwrap
from types import FunctionType, NoneType
from typing import Any

from torch import nn

from trainers.repeatable.random_state import is_generator, set_state, state_of

Plain = bool | int | float | str | None


Attributes = dict[str, Plain]
"""By full name: `encoder.layers.1.steps`, `networks:Encoder.steps`, `networks:STEPS`, `its task:steps`."""


TORCHS_OWN = frozenset(vars(nn.Module()))


_PLAIN = (bool, int, float, str, NoneType)


MISSING: Any = object()
"""The value of an attribute that is not there."""


class PlainAttributes:
    """What of the attributes of a network's code changes, and what it was as the model was built.

    Args:
        model: as its task built it.
        scratch: names of attributes that are left alone, beside those that modules name in their `scratch`.
        code: what it is trained with beside the model (see `shared_holders`).
    """

    def __init__(self, model: nn.Module, scratch: frozenset[str], code: Mapping[str, object] | None = None) -> None:
        self._scratch = scratch | scratch_in(model)
        self._holders = {**module_holders(model), **shared_holders(model, code or {})}
        self._built = self.now()
        self._moving: set[str] = set()

    def now(self) -> Attributes:
        """Return all that are plain."""
        return {
            joined(path, name): got(holder, name)
            for path, holder in self._holders.items()
            for name, value in vars(holder).items()
            if (type(value) in _PLAIN or is_generator(value)) and not self._is_left_alone(name)
        }

    def looked_at(self, close: bool) -> Attributes:
        """Return those that are known to change; closely: all."""
        if close:
            return self.now()
        found = {name: self._get(name) for name in self._moving}
        return {name: value for name, value in found.items() if type(value) in _PLAIN}

    def changed(self) -> Attributes:
        """Return those that are not as they were built."""
        return {name: value for name, value in self.now().items() if not self._is_built(name, value)}

    def give(self, own: Mapping[str, Plain]) -> None:
        """Let the model have a worker's: `own`, and the rest as built."""
        if not own and not self._moving:
            return
        self._moving |= own.keys()
        for name in self._moving:
            self._put(name, own.get(name, self._built.get(name, MISSING)))

    def take(self, own: MutableMapping[str, Plain], close: bool) -> None:
        """Let `own` be what the model has now; closely: also if it changed for the first time."""
        if close:
            self._moving |= self.changed().keys()
        if not self._moving:
            return
        own.clear()
        for name in sorted(self._moving):
            self.keep(name, self._get(name), own)

    def keep(self, name: str, value: Any, own: MutableMapping[str, Plain]) -> None:
        """Let a worker have `value`, unless it is none of its own: not plain, or as built."""
        self._moving.add(name)
        own.pop(name, None)
        if type(value) in _PLAIN and not self._is_built(name, value):
            own[name] = value

    def leave(self) -> None:
        """Let what other networks share be as it was built; the next `give` has it anew."""
        for name in self._moving:
            if is_shared(name):
                self._put(name, self._built.get(name, MISSING))

    @contextmanager
    def for_a_while(self, own: Mapping[str, Plain]) -> Iterator[None]:
        """Let the model have `own`, then again what it had."""
        before = self.now()
        self.give(own)
        try:
            yield
        finally:
            after = self.now()
            for name in after.keys() | before.keys():
                value, now = before.get(name, MISSING), after.get(name, MISSING)
                if type(value) is not type(now) or value != now:
                    self._put(name, value)

    def _is_left_alone(self, name: str) -> bool:
        return name in TORCHS_OWN or name in self._scratch or name[:2] == "__"

    def _is_built(self, name: str, value: object) -> bool:
        built = self._built.get(name, MISSING)
        return type(value) is type(built) and value == built

    def _get(self, name: str) -> Any:
        path, last = split(name)
        holder = self._holders.get(path)
        return MISSING if holder is None else got(holder, last)

    def _put(self, name: str, value: Any) -> None:
        path, last = split(name)
        holder = self._holders.get(path)
        if holder is not None and last not in TORCHS_OWN and last[:2] != "__":  # which a checkpoint could name
            put(holder, last, value)


def scratch_in(model: nn.Module) -> frozenset[str]:
    """Return the names of attributes of which a model's modules say themselves that nothing reads them later."""
    told = [getattr(module, "scratch", ()) for module in model.modules()]
    return frozenset(name for names in told if isinstance(names, tuple | list) for name in names)


TASK = "its task:"
"""The name of a job's own task, which no other network has."""


_NOBODYS = frozenset({"torch", "trainers", "fleet", "preprocess", "benchmarks", "builtins", "__main__"})
"""Packages whose classes keep nothing of a network's, and a person's own script, whose variables are its own."""


def module_holders(model: nn.Module) -> dict[str, Any]:
    """Return a model's modules by path."""
    return dict(model.named_modules())


def shared_holders(model: nn.Module, code: Mapping[str, object]) -> dict[str, Any]:
    """Return objects (`its loss:`), classes (`package.module:Class`) and Python modules (`package.module:`), by name.

    code: what a job is trained with beside its model, by what it is: functions, classes, objects.
    """
    found = object_holders(code)
    for each in (*model.modules(), *map(_unwrapped, code.values())):
        found.update(_of(each))
    return found


def object_holders(code: Mapping[str, object]) -> dict[str, Any]:
    """Return the objects among a job's code, and the modules of a loss that is one, by name (`its loss:`)."""
    found: dict[str, Any] = {}
    for what, each in code.items():
        found.update(_objects(f"its {what}:", _unwrapped(each)))
    return found


def _unwrapped(code: object) -> object:
    while isinstance(code, partial):
        code = code.func
    return unwrap(code) if isinstance(code, FunctionType) else code


def _objects(name: str, code: object) -> Iterator[tuple[str, Any]]:
    if isinstance(code, nn.Module):
        yield from ((f"{name}{path}", module) for path, module in code.named_modules())
    elif not isinstance(code, type | FunctionType) and hasattr(code, "__dict__"):
        yield name, code


def _of(code: object) -> Iterator[tuple[str, Any]]:
    if isinstance(code, FunctionType):
        yield from _module(code.__module__)
        return
    for each in (code if isinstance(code, type) else type(code)).__mro__:
        if _is_own(each.__module__):
            yield f"{each.__module__}:{each.__qualname__}", each
            yield from _module(each.__module__)


def _module(name: str) -> Iterator[tuple[str, Any]]:
    if _is_own(name) and name in sys.modules:
        yield f"{name}:", sys.modules[name]


def _is_own(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in _NOBODYS and top not in sys.stdlib_module_names


def is_shared(name: str) -> bool:
    """Whether other networks of a process may have the attribute, too: one of a class, a Python module, a loss."""
    return ":" in name and not name.startswith(TASK)


def split(name: str) -> tuple[str, str]:
    """Return the holder's name and the attribute's."""
    path, _, last = name.rpartition(".")
    if ":" in last:  # of a Python module or an object, whose names end so
        path, last = name[: name.index(":") + 1], name[name.index(":") + 1 :]
    return path, last


def joined(path: str, name: str) -> str:
    """Return the full name of an attribute."""
    return f"{path}{name}" if path.endswith(":") or not path else f"{path}.{name}"


def got(holder: Any, name: str) -> Any:
    """Return an attribute, of a generator its state as a text, or MISSING."""
    value = vars(holder).get(name, MISSING)
    return state_of(value) if is_generator(value) else value


def put(holder: Any, name: str, value: Any) -> None:
    """Set an attribute past properties and `__setattr__`, as what was read is what is put back."""
    there = vars(holder).get(name, MISSING)
    if is_generator(there):
        if isinstance(value, str):
            set_state(there, value)
    elif value is MISSING:
        _take_away(holder, name)
    elif isinstance(holder, type):
        type.__setattr__(holder, name, value)
    else:
        holder.__dict__[name] = value


def _take_away(holder: Any, name: str) -> None:
    if name in vars(holder):
        if isinstance(holder, type):
            type.__delattr__(holder, name)
        else:
            del holder.__dict__[name]
