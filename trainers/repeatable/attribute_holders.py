"""Where code keeps plain values that its next pass finds: a network's modules, and what a process's networks share.

A counter may be an attribute of a class, a global of a Python module, or an attribute of the task whose loss counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from inspect import unwrap
from types import FunctionType
from typing import Any

from torch import nn

from trainers.repeatable.own_generators import is_generator, set_state, state_of

MISSING: Any = object()
"""The value of an attribute that is not there."""
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
