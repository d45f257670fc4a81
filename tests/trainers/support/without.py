"""A module of the project with one of its waits taken away."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from tests.device.waits import ROOT, Mutant


def without(mutant: Mutant) -> Any:
    """Return the mutant's module, which nobody else knows."""
    return made_of(mutant.module, mutant.text.replace(mutant.old, mutant.new))


def made_of(name: str, text: str) -> Any:
    """Return a module of this name and text, which nobody else knows."""
    made = ModuleType(name)
    made.__file__ = str(ROOT / name.replace(".", "/")) + ".py"
    kept = importlib.import_module(name)
    sys.modules[name] = made  # dataclasses look there
    try:
        exec(compile(text, made.__file__, "exec"), vars(made))
    finally:
        sys.modules[name] = kept
    return made
