"""``module:Name`` -> the object, and whether arguments fit it; errors say what to write instead."""

from __future__ import annotations

import inspect
import pathlib
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fleet.spec.problem import KeyPath, listed, nearest
from preprocess.files.modules import HiddenModule, import_named, importable, importable_folders

__all__ = ["ReferenceProblem", "first_line", "importable", "resolve"]


_IMPORTING = (__file__, import_named.__code__.co_filename)


class ReferenceProblem(ValueError):
    """A name that leads to no usable object.

    Attributes:
        rule: what is wrong.
        suggestion: the nearest name that exists, or None.
        mend: what to do.
    """

    def __init__(self, rule: str, suggestion: str | None = None, mend: str = "") -> None:
        parts = (rule, f"nearest: {suggestion}" if suggestion else "", mend)
        super().__init__("; ".join(part for part in parts if part))
        self.rule, self.suggestion, self.mend = rule, suggestion, mend


def resolve(reference: str) -> Any:
    """The object that ``module:Name`` names; dots in Name reach into it.

    Raises:
        ReferenceProblem: it is not written so, the module cannot be imported, or has no such name.
    """
    module_name, colon, path = reference.partition(":")
    words = module_name.split(".") + path.split(".")
    if not colon or not all(word.isidentifier() for word in words):
        suggestion = ":".join(reference.rpartition(".")[::2]) if not colon and "." in reference else None
        raise ReferenceProblem(
            f"{reference!r} is not written module:Name", suggestion, "write it as in mypackage.models:Net"
        )
    found: Any = _import(module_name, path)
    for end, part in enumerate(path.split(".")):
        if not hasattr(found, part):
            holder = ".".join([module_name, *path.split(".")[:end]])
            raise _no_attribute(holder, part, found, ":".join((module_name, ".".join(path.split(".")[:end] + [""]))))
        found = getattr(found, part)
    return found


def _no_attribute(holder: str, part: str, found: Any, prefix: str) -> ReferenceProblem:
    close = nearest(part, [name for name in dir(found) if not name.startswith("_")])
    suggestion = prefix + close if close else None
    mend = f"write {suggestion}" if suggestion else f"define {part} in {holder}"
    return ReferenceProblem(f"{holder} has no {part!r}", suggestion, mend)


def _import(name: str, path: str) -> ModuleType:
    from preprocess.samples.errors import ENDS_THE_PROCESS, same_folder  # here: who names nothing loads no data path

    try:
        with same_folder():
            return import_named(name)
    except HiddenModule as error:
        raise ReferenceProblem(error.rule, mend=error.mend) from None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            close = _nearest_module(name, error.name)
            mend = "correct the name, or put the module beside the spec, into the current folder or on PYTHONPATH"
            suggestion = f"{close}:{path}" if close else None
            raise ReferenceProblem(f"there is no module {error.name!r}", suggestion, mend) from None
        rule = f"importing {name} failed: it imports {error.name!r}, which is not there"
        raise ReferenceProblem(rule, mend=f"install {error.name} or take that import away") from None
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        rule = f"importing {name} raised {type(error).__name__}: {first_line(error)}{_place(error)}"
        mend = ENDS_THE_PROCESS if isinstance(error, SystemExit) else "mend the module"
        raise ReferenceProblem(rule, mend=mend) from None


def _nearest_module(name: str, missing: str) -> str | None:
    parent, _, last = missing.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    places = folders if parent else [*importable_folders(), *sys.path]
    names = [module.name for module in pkgutil.iter_modules(places)] if places else []
    close = nearest(last, names, likeness=0.75)  # there are hundreds of modules
    return f"{parent}.{close}".lstrip(".") + name[len(missing) :] if close else None


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    try:
        return (str(error).strip() or "no message").split("\n")[0]
    except Exception:  # a user's own error class may not know how to be shown
        return "no message"


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text holds the place
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if frame.filename not in _IMPORTING and "importlib" not in frame.filename]
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    own = [frame for frame in own if not frame.filename.startswith(libraries)] or own
    return f" ({pathlib.Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


@dataclass(frozen=True)
class Misfit:
    """One way in which arguments do not fit: the argument (None: all of them), the rule, the nearest name, the mend."""

    argument: str | None
    rule: str
    suggestion: str | None = None
    mend: str = ""

    def place(self, arguments: Mapping[str, Any]) -> tuple[KeyPath, Any]:
        """Return where it stands below what is called, and the value there."""
        if self.argument is None:
            return ("arguments",), dict(arguments)
        return ("arguments", self.argument), arguments[self.argument]


def misfits(
    function: Callable[..., Any], name: str, arguments: Mapping[str, Any], positional: int = 0
) -> Iterator[Misfit]:
    """Yield what in ``arguments`` the signature does not accept.

    Args:
        function: what will be called.
        name: how the messages call it.
        arguments: its keyword arguments.
        positional: how many further arguments it will get by position.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    kinds = inspect.Parameter
    open_ended = any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters)
    named = [p for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.POSITIONAL_ONLY)][positional:]
    named += [p for p in parameters if p.kind is kinds.KEYWORD_ONLY]
    known = [parameter.name for parameter in named]
    meant = set()
    for key in arguments:
        if key not in known and not open_ended:
            takes = f"it takes {listed(known)}" if known else "it takes none"
            close = nearest(key, known)
            meant.add(close)
            mend = f"rename it to {close}" if close else "take it away"
            yield Misfit(key, f"{name} has no argument {key!r}; {takes}", close, mend)
    for parameter in named:
        if parameter.default is kinds.empty and parameter.name not in {*arguments, *meant}:
            mend = f"add `{parameter.name}: ...` to its arguments; its signature is {signature_of(function, name)}"
            yield Misfit(None, f"{name} needs the argument {parameter.name!r}", parameter.name, mend)


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's parameters; none where it has no signature."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def refused(function: Callable[..., Any], name: str, error: BaseException) -> Misfit:
    """Return what a call raised, with the signature."""
    mend = f"change its arguments; its signature is {signature_of(function, name)}"
    return Misfit(None, f"{name} raised {type(error).__name__}: {first_line(error)}", mend=mend)


def signature_of(function: Callable[..., Any], name: str, limit: int = 200) -> str:
    """``name(parameter, parameter=default)``, without annotations."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    text = name.rpartition(":")[2] + str(inspect.Signature(plain))
    return text if len(text) <= limit else text[: limit - 4] + "...)"
