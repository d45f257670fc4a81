"""The state of a run under way changes through the recorder alone."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from fleet.coordination.live_state import LiveState

FLEET = Path(__file__).resolve().parents[2] / "fleet"
THEIR_OWN = {"live_state.py"}


def changing_methods() -> set[str]:
    """Public methods of the state that return nothing: they are what happens. Events may be applied by anyone: they are
    in the journal already.
    """
    methods = inspect.getmembers(LiveState, inspect.isfunction)
    answers = {name: inspect.signature(method).return_annotation for name, method in methods if name[0] != "_"}
    return {name for name, answer in answers.items() if answer == "None" and not name.startswith("on_")} - {"take"}


def changes(text: str, methods: set[str]) -> list[str]:
    """What a module does to a ledger: methods that change it, and attributes that are set."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found += [node.func.attr] if _is_ledger(node.func.value) and node.func.attr in methods else []
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if isinstance(node, (ast.Assign, ast.AugAssign)) else []:
            inner = target.value if isinstance(target, ast.Subscript) else target
            found += [inner.attr] if isinstance(inner, ast.Attribute) and _is_ledger(inner.value) else []
    return found


def _is_ledger(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in {"ledger", "_ledger", "state", "_state"}


@pytest.mark.parametrize("room", sorted(path.name for path in FLEET.iterdir() if path.is_dir()))
def test_only_the_recorder_changes_the_state(room: str) -> None:
    methods = changing_methods()
    files = [path for path in (FLEET / room).rglob("*.py") if path.name not in THEIR_OWN]
    assert not {path.name: found for path in files if (found := changes(path.read_text(), methods))}


def test_changes_of_the_state_would_be_found() -> None:
    methods = changing_methods()
    assert {"started", "done", "charged", "stopped", "planned"} <= methods and "state" not in methods
    text = "self.ledger.done(1)\nledger.is_over = True\nself._ledger.jobs[2] = 3\nledger.samples += 4\nledger.state(5)"
    assert sorted(changes(text, methods)) == ["done", "is_over", "jobs", "samples"]
