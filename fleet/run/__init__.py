"""A run of an ensemble, as rank 0 leads it from its spec to its report; `fleet.run(spec)` begins one."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """This room, which can be called: the function `fleet.run` has its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from fleet.run.from_python.starting import run

        return run(*arguments, **options)


sys.modules[__name__].__class__ = _Room
