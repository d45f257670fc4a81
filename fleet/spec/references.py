"""``module:Name`` -> the object, with an error that says what to write instead."""

from __future__ import annotations

import pathlib
import pkgutil
import sys
import sysconfig
import traceback
from types import ModuleType
from typing import Any

from fleet.spec.problem import nearest
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
