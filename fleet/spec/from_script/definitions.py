"""What of a script can be imported: its definitions, the file of parts beside a spec, and what a module defines."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fleet.spec.from_script.first_spec import Found
from fleet.spec.from_script.value_origins import MAIN, Calls, Unwritten
from fleet.spec.from_script.watched_script import Script
from preprocess.files.reading import read_text

_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_HARMLESS = (
    "getLogger",
    "device",
    "is_available",
    "join",
    "dirname",
    "abspath",
    "Path",
    "TypeVar",
    "namedtuple",
    "get",
)
_OPTIONS = ("parse_args", "parse_known_args")


@dataclass(frozen=True)
class Definitions:
    """A script's own level.

    Attributes:
        name: the file's name without its ending.
        text: the script; tree: its syntax tree.
    """

    name: str
    text: str
    tree: ast.Module = field(repr=False)

    @classmethod
    def of(cls, path: Path) -> Definitions:
        """Read a script; OSError, SyntaxError, UnicodeDecodeError: it cannot be read."""
        text = read_text(path)
        return cls(path.stem, text, ast.parse(text, str(path)))

    @property
    def trains_when_imported(self) -> bool:
        """Whether importing the script does more than to define things, or nothing can import a file of its name."""
        odd = not self.name.isidentifier() or self.name in sys.stdlib_module_names
        return odd or not all(_is_harmless(node) for node in self.tree.body)

    @property
    def names(self) -> set[str]:
        """All names of the script's own level."""
        return {name for node in self.tree.body for name in _binds(node)}

    def needed(self, names: Iterable[str]) -> str:
        """The text of what names stand for, and of all that these use, in the script's order.

        Raises:
            Unwritten: something of it comes from the command line, or from no definition.
        """
        taken: dict[ast.stmt, set[str]] = {}
        waiting, seen = list(names), set(names)
        while waiting:
            name = waiting.pop()
            found = [node for node in self.tree.body if name in _binds(node)]
            if not found and not hasattr(builtins, name):
                raise Unwritten(f"{name} is no definition at the script's own level")
            for node in found:
                if any(isinstance(each, ast.Attribute) and each.attr in _OPTIONS for each in ast.walk(node)):
                    raise Unwritten(f"{name} comes from the command line; hand it over as an argument")
                taken.setdefault(node, set()).add(name)
                used = set(_uses(node)) - seen
                seen |= used
                waiting += [each for each in used if any(each in _binds(other) for other in self.tree.body)]
        return "\n".join(_spaced(taken, self.text.splitlines()))


def _spaced(taken: Mapping[ast.stmt, set[str]], lines: list[str]) -> Iterator[str]:
    """The texts of statements; of imports, the names that are taken alone."""
    before: ast.stmt | None = None
    for node in sorted(taken, key=lambda node: node.lineno):
        is_import = isinstance(node, _IMPORTS)
        if isinstance(node, _DEFINITIONS) or isinstance(before, _DEFINITIONS):
            yield "\n"
        elif isinstance(before, _IMPORTS) and not is_import:
            yield ""
        if isinstance(node, _IMPORTS):
            node.names = [each for each in node.names if _bound(each) in taken[node]]
            yield ast.unparse(node)
        else:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
            yield "\n".join(lines[first - 1 : node.end_lineno])
        before = node


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _is_harmless(node: ast.stmt) -> bool:
    if isinstance(node, (*_IMPORTS, *_DEFINITIONS, ast.Pass)) or _is_guard(node):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, (ast.Try, ast.If)):
        parts = [*node.body, *node.orelse, *(inner for each in getattr(node, "handlers", []) for inner in each.body)]
        return all(_is_harmless(each) for each in parts)
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return all(
        (each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "")) in _HARMLESS for each in calls
    )


def _is_guard(node: ast.stmt) -> bool:
    """Return whether a statement is `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and "__name__" in {
        each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)
    }


def _binds(node: ast.stmt) -> set[str]:
    """The names that a statement of the script's own level gives a meaning."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, _IMPORTS):
        return {_bound(each) for each in node.names}
    if isinstance(node, (ast.Try, ast.If)) and not _is_guard(node):
        return {name for inner in (*node.body, *node.orelse) for name in _binds(inner)}
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return set()


def _uses(node: ast.stmt) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


_ARGUMENTS = {
    "model": "",
    "loss": "outputs, targets",
    "schedule": "optimizer",
    "joined": "samples",
    "weights": "samples",
}
_MEANING = {
    "model": "The network.",
    "loss": "The mean loss of a batch.",
    "schedule": "The schedule of the learning rate, which is stepped once a step.",
    "joined": "A batch of samples.",
    "weights": "How often each training sample is drawn, in relation to the others.",
    "train_data": "The samples to train on.",
    "held_out_data": "The samples to evaluate on.",
}


def parts_text(
    calls: Calls, script: Definitions, functions: Mapping[str, str], names: Mapping[str, str], copies: bool
) -> str | None:
    """The file's text; None: it is not needed.

    Args:
        functions: what a function gives -> its body.
        names: what a function gives -> its name.
        copies: whether it has copies of the script's definitions, since importing the script would train.

    Raises:
        Unwritten: a definition cannot be copied.
    """
    own = calls.own | (calls.named if copies else set())
    if not functions and not (copies and own):
        return None
    why = "which would train if it were imported" if copies else "which plain values cannot make"
    what = "Copies of definitions" if copies else "Parts"
    copied = script.needed(own) if own and copies else ""
    imports = [f"import {each}" for each in sorted(calls.imports) if f"import {each}" not in copied.splitlines()]
    blocks = [f'"""{what} of {script.name}.py, {why}."""', "\n".join(imports)]
    if copied:
        blocks.append(copied)
    elif own:
        blocks.append(f"from {calls.module} import {', '.join(sorted(own))}")
    head = "\n\n".join(block for block in blocks if block)
    return "\n\n\n".join([head, *(_function(key, names[key], body) for key, body in functions.items())]) + "\n"


def _function(key: str, name: str, body: str) -> str:
    lines = [f"def {name}({_ARGUMENTS.get(key, '')}):", f'    """{_MEANING[key]}"""']
    return "\n".join([*lines, *(f"    {line}" for line in body.splitlines())])


_TASK = ("model", "optimizer", "dataset", "loss")
_WITHOUT_DATA = "define a class with len() and [index] -> (input, target) that takes no arguments, or `train` alone"
_WITHOUT_NETWORKS = (
    "define a torch.nn.Module, or a task class (docs/how-to/port-a-ddp-script.md), that takes no arguments"
)


def read_definitions(script: Script) -> Found:
    """Write down each task class and each network that can be made without arguments, with the first data set."""
    classes = list(_classes(script))
    tasks = [
        each for each in classes if all(callable(getattr(each, name, None)) for name in _TASK) and _can_be_made(each)
    ]
    if tasks:
        jobs = tuple(
            {"name": _job_name(each), "task": _address(each, script), "stop": {"epochs": 10}} for each in tasks
        )
        return Found(jobs=jobs, told=("how many epochs to train is not known: 10 are written",))
    networks = [each for each in classes if issubclass(each, nn.Module) and _can_be_made(each, on_meta=True)]
    problems = (
        [] if networks else [f"{script.module} has no network that is made without arguments; {_WITHOUT_NETWORKS}"]
    )
    samples = next((found for each in classes if (found := _data_section(each, script)) is not None), None)
    if samples is None:
        problems.append(f"{script.module} has no data set; {_WITHOUT_DATA}")
        return Found(problems=tuple(problems))
    section, loss = samples
    common = {
        "data": "samples",
        "optimizer": {"name": "AdamW", "arguments": {"lr": 0.001}},
        "loss": loss,
        "metrics": ["accuracy" if loss == "cross_entropy" else "mean_absolute_error"],
        "stop": {"epochs": 10},
    }
    jobs = tuple({"name": _job_name(each), "model": _address(each, script), **common} for each in networks)
    told = ("nothing was trained: the optimizer, the loss and 10 epochs are a beginning of fleet's own",)
    return Found({"samples": section}, jobs, 0, None, told, tuple(problems))


def _classes(script: Script) -> Iterator[type]:
    """The classes that the module defines, or a package's modules, in the order of their lines."""
    for module in _modules(script):
        found = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__]
        yield from found


def _modules(script: Script) -> Iterator[ModuleType]:
    if script.package != script.module:
        yield sys.modules[MAIN]
        return
    top = importlib.import_module(script.package)
    yield top
    for each in pkgutil.walk_packages(top.__path__, f"{script.package}."):
        if not each.name.endswith("__main__"):
            yield importlib.import_module(each.name)


def _can_be_made(kind: type, on_meta: bool = False) -> bool:
    try:
        with torch.random.fork_rng(), torch.device("meta" if on_meta else "cpu"):
            kind()
    except Exception:  # of the class's own code, or an argument that it needs
        return False
    return True


def _data_section(kind: type, script: Script) -> tuple[dict[str, Any], str] | None:
    """The section of a data set, and the loss that fits its targets; None: the class is none."""
    if issubclass(kind, nn.Module) or not (hasattr(kind, "__len__") and hasattr(kind, "__getitem__")):
        return None
    address = _address(kind, script)
    takes_train = "train" in inspect.signature(kind).parameters
    for arguments in ({"train": True}, {}) if takes_train else ({},):
        try:
            made: Any = kind(**arguments)
            _, target = made[0]
        except Exception:  # no pairs, no data, or an argument that it needs
            continue
        whole = torch.as_tensor(target)
        section: dict[str, Any] = {"train": {"source": address, "arguments": arguments}}
        if arguments:
            section["held_out"] = {"source": address, "arguments": {"train": False}}
        return section, "mse_loss" if whole.is_floating_point() else "cross_entropy"
    return None


def _address(kind: type, script: Script) -> str:
    module = script.module if kind.__module__ == MAIN else kind.__module__
    return f"{module}:{kind.__qualname__}"


def _job_name(kind: type) -> str:
    """A class's name as a job's: TwoWords becomes two-words."""
    letters = [
        f"-{each.lower()}" if each.isupper() and place else each.lower() for place, each in enumerate(kind.__name__)
    ]
    return "".join(letters) if not kind.__name__.isupper() else kind.__name__.lower()
