"""Objects that people name in a spec as `module:Name`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from preprocess.files.modules import HiddenModule, import_named
from preprocess.samples.errors import DataSpecError, spelling_advice

ENDS_THE_PROCESS = (
    "a module that is imported should end no process: read the command line, or call sys.exit, below "
    'if __name__ == "__main__":'
)
"""The mend of a module that raises SystemExit, as argparse does where the words are another command's."""


def load_object(name: str, error: type[DataSpecError]) -> Any:
    """Import `module:Name` and return the object; dots in Name reach into it.

    Raises:
        error: the text has no colon, the module does not import, or it has no such name.
    """
    module_name, colon, path = name.partition(":")
    if not (colon and module_name and path):
        raise error(name, "a name of your own is written module:Name", "write for example mypackage.data:Digits")
    found: Any = _import(module_name, name, error)
    for part in path.split("."):
        if not hasattr(found, part):
            public = (key for key in dir(found) if not key.startswith("_"))
            raise error(name, f"{module_name!r} imports, but has no {part!r}", spelling_advice(part, public))
        found = getattr(found, part)
    return found


def _import(module_name: str, name: str, error: type[DataSpecError]) -> ModuleType:
    try:
        with same_folder():
            return import_named(module_name)
    except HiddenModule as cause:
        raise error(name, cause.rule, cause.mend) from None
    except (Exception, SystemExit) as cause:  # a user's module may raise anything while it is imported
        reason = f"importing {module_name!r} raised {type(cause).__name__}: {cause}"
        mend = "mend the module, run from the folder that holds it, or put that folder on PYTHONPATH"
        mend = ENDS_THE_PROCESS if isinstance(cause, SystemExit) else mend
        raise error(name, reason, mend) from cause


@contextmanager
def same_folder() -> Iterator[None]:
    """Go back to the current folder: a module may leave it, and others' relative paths begin there."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it is gone
        yield
        return
    try:
        yield
    finally:
        os.chdir(here)
