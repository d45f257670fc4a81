"""A script or a module, run as its own program under watch."""

from __future__ import annotations

import importlib.util
import linecache
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from fleet.spec.from_script.calls import MAIN
from fleet.spec.from_script.makings import Makings
from fleet.spec.from_script.own_machine import alone
from fleet.spec.from_script.watch import Enough, Watch
from fleet.spec.references import first_line
from preprocess.files.reading import MOST_JSON_BYTES, read_bytes


class ScriptFailed(ValueError):
    """The script ended by an error, or asked to end, before it trained."""


@dataclass(frozen=True)
class Script:
    """What is to be run.

    Attributes:
        path: its file.
        module: the name under which a spec imports it.
        package: the package that it is a part of, "": none.
    """

    path: Path
    module: str
    package: str = ""

    @classmethod
    def named(cls, name: str) -> Script:
        """A module, or a package's `__main__`, of which only the file is looked up.

        Raises:
            ScriptFailed: there is none.
        """
        try:
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{name}.__main__") or spec
        except Exception as error:  # a package above it that cannot be imported may raise anything
            raise ScriptFailed(f"{name} cannot be imported: {type(error).__name__}: {first_line(error)}") from None
        if spec is None or spec.origin is None:
            raise ScriptFailed(f"there is no module {name}; fleet looks in this folder and among installed packages")
        package = name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
        return cls(Path(spec.origin), spec.name, package)


def watched(script: Script, options: Sequence[str]) -> Watch:
    """Run a script until its second step, or to its end; what its training showed is in the watch.

    Raises:
        ScriptFailed: it cannot be read, or ends by an error before its first step.
    """
    try:
        code = compile(read_bytes(script.path, MOST_JSON_BYTES), str(script.path), "exec")
    except (OSError, SyntaxError, ValueError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ScriptFailed(f"{script.path.name} cannot be read{where}: {first_line(error)}") from None
    watch = Watch(Makings(str(script.path)))
    main = ModuleType(MAIN)
    main.__file__, main.__package__ = str(script.path), script.package or None
    before = sys.argv
    sys.modules[MAIN], sys.argv = main, [str(script.path), *options]
    try:
        with alone(watch.compiled.append):
            _run(code, main, watch)
    finally:
        sys.argv = before
    return watch


def _run(code: CodeType, main: ModuleType, watch: Watch) -> None:
    try:
        with watch:
            exec(code, vars(main))
    except Enough:
        pass
    except SystemExit as end:
        if watch.step is None and end.code not in (None, 0):
            told = end.code if isinstance(end.code, str) else f"code {end.code}"
            mend = "write its options behind --, as in: fleet init train.py -- --lr 0.1"
            raise ScriptFailed(f"the script ended with {told} before its first step; {mend}") from None
    except BaseException as error:
        if watch.step is None:
            raise ScriptFailed(_told(error, main)) from None


def _told(error: BaseException, main: ModuleType) -> str:
    """The script's own line of an error, and the error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == main.__file__]
    where = (
        f"line {own[-1].lineno}, `{linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()}`: " if own else ""
    )
    return f"the script failed before its first step: {where}{type(error).__name__}: {first_line(error)}"
