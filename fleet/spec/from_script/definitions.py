"""What of a script can be imported, and the definitions of one that trains when it is."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleet.spec.from_script.calls import Unwritten
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
    """Whether a statement is `if __name__ == "__main__":`."""
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
