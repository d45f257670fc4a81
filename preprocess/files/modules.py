"""Import the modules that people name, and nothing else that lies in their folders.

A spec names code as `module:Name`, in a module beside it or in the current folder. Other files there are data: a
`sympy.py` that somebody left in a shared folder must not run because torch imports sympy. So these folders are never on
`sys.path`. A finder behind all others, which Python asks only for what it finds nowhere else, serves two kinds of
imports: of the module that is named, and those that stand in a module which it served from the same folder, at its top
or in a function that runs much later.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_OWN = ("fleet", "preprocess", "trainers")  # what specs name in these is meant, whatever lies in a checkout beside
_SAFE, _OURS = "PYTHONSAFEPATH", "spawned"  # any value will do for Python; this one says whose it is
_IMPORTING = ("importlib", "_frozen_importlib", "_frozen_importlib_external")


class HiddenModule(ImportError):
    """Another module comes before the one of that name in a person's folder.

    Attributes:
        rule: which one.
        mend: what to do.
    """

    def __init__(self, rule: str, mend: str) -> None:
        super().__init__(f"{rule}; {mend}")
        self.rule, self.mend = rule, mend


@contextmanager
def importable(paths: Iterable[str | os.PathLike[str]]) -> Iterator[None]:
    """Let `import_named` find modules in these folders, behind all that are installed, for a time.

    Modules imported meanwhile stay imported, and find those beside them for as long as the process lives.
    """
    added = [os.path.abspath(path) for path in paths]
    new = [path for path in dict.fromkeys(added) if path not in _beside.folders]
    _beside.folders[:0] = new
    if _beside not in sys.meta_path:
        sys.meta_path.append(_beside)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for path in new:
            _beside.folders.remove(path)


@contextmanager
def at_home(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Let a spec's modules be found, and relative paths begin in its folder, for a time.

    Modules may lie in the current folder, too; relative paths of data never begin there. Where the folder is not there,
    as on a node that does not share it, paths begin where they did.
    """
    with importable([folder, os.getcwd()]), standing_in(folder):
        yield


@contextmanager
def standing_in(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Let relative paths begin in a folder, for a time; the whole process stands there."""
    before = os.getcwd()
    moves = os.path.isdir(folder) and not os.path.samefile(folder, before)
    if moves:
        os.chdir(folder)
    try:
        yield
    finally:
        if moves:
            os.chdir(before)


def importable_folders() -> Sequence[str]:
    """The folders that are importable now, in the order in which they are looked through."""
    return tuple(_beside.folders)


def import_named(name: str) -> ModuleType:
    """Import the module of a `module:Name`.

    Raises:
        HiddenModule: it lies in an importable folder, and an installed one of that name would be taken instead.
        BaseException: whatever the module raises.
    """
    top = name.partition(".")[0]
    outer, _beside.named.top = _beside.named_top(), top
    try:
        _check_not_hidden(top)
        return importlib.import_module(name)
    finally:
        _beside.named.top = outer


def python(*words: str) -> list[str]:
    """Return the command of a Python that looks for no modules in its current folder, as -P says since Python 3.11.

    Not by a variable: what it starts itself, such as a person's own scripts, shall look where it always does.

    Args:
        words: `-m MODULE` or `-c CODE`, and arguments.
    """
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", *words]
    kind, what, *others = words
    code = f"import runpy; runpy.run_module({what!r}, run_name='__main__', alter_sys=True)" if kind == "-m" else what
    return [sys.executable, "-c", f"import sys; del sys.path[0]; {code}", *others]


@contextmanager
def safe_path() -> Iterator[None]:
    """Let processes that multiprocessing spawns meanwhile look for no modules in their current folder.

    Python knows how since 3.11. What `spawned` does takes the variable away again from what they start themselves.
    """
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = before or _OURS
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE]


def spawned(folders: Iterable[str]) -> AbstractContextManager[None]:
    """Find modules, in a process that was spawned, where the process does that spawned it; see `importable_folders`."""
    if os.environ.get(_SAFE) == _OURS:
        del os.environ[_SAFE]
    return importable(folders)


class _Beside(MetaPathFinder):
    """The last finder that Python asks: whatever is installed, or on PYTHONPATH, has been found before."""

    def __init__(self) -> None:
        self.folders: list[str] = []
        self.homes: dict[str, str] = {}  # the folders of those that were found here, by name
        self.named = threading.local()

    def named_top(self) -> str | None:
        """The module that this thread imports because somebody named it, without what follows a dot."""
        return getattr(self.named, "top", None)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find what is named, or what stands beside the module that imports it."""
        if path is not None:  # a part of a package, which Python finds where that lies
            return None
        for folder in self.folders if name == self.named_top() else self._home_of_importer():
            found = PathFinder.find_spec(name, [folder])
            if found is not None:
                self.homes[name] = folder
                return found
        return None

    def _home_of_importer(self) -> list[str]:
        """The folder of the module in whose code the import stands, if it was found here; in a list."""
        frame = sys._getframe(2)
        while frame.f_back is not None and _top_of(frame.f_globals.get("__name__")) in _IMPORTING:
            frame = frame.f_back
        home = self.homes.get(_top_of(frame.f_globals.get("__name__")))
        return [] if home is None else [home]


def _top_of(name: object) -> str:
    return name.partition(".")[0] if isinstance(name, str) else ""


_beside = _Beside()


def _check_not_hidden(top: str) -> None:
    if top in _OWN or top in _beside.homes:
        return
    found = [PathFinder.find_spec(top, [folder]) for folder in _beside.folders]
    meant = next((spec.origin for spec in found if spec is not None and spec.origin), None)
    if meant is None:  # not there, or a folder of data that only looks like a package
        return
    others = (finder.find_spec(top, None) for finder in sys.meta_path if finder is not _beside)
    taken = next((spec for spec in others if spec is not None), None)
    if taken is None or taken.origin is not None and os.path.realpath(taken.origin) == os.path.realpath(meant):
        return
    what = "a module of Python's own" if top in sys.stdlib_module_names else f"installed in {_place_of(taken)}"
    rule = f"{top} is {what}, which comes before {meant}"
    raise HiddenModule(rule, "rename that file, or put its folder on PYTHONPATH, whose modules come first")


def _place_of(spec: ModuleSpec) -> str:
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "another place")


def let_forks_end(numbers: Iterable[int]) -> None:
    """Let these signals end the processes that are forked from now on, whatever they do here.

    A pool sends SIGTERM to its processes and waits for them: those that only note a signal, or ignore it, stay on.
    Signals that come while a process forks wait until the new one has its own way to take them.
    """
    taken = frozenset(numbers)
    here = threading.local()  # masks belong to threads

    def hold() -> None:
        here.mask = signal.pthread_sigmask(signal.SIG_BLOCK, taken)

    def go_on() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, here.mask)

    def be_a_fork() -> None:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        go_on()

    os.register_at_fork(before=hold, after_in_parent=go_on, after_in_child=be_a_fork)
