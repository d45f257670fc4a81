"""Packages that only some sources need, and that only those who open such a source import."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from preprocess.samples.errors import SourceError


def needed(module: str, package: str, extra: str, what: str) -> Any:
    """Import a module and return it.

    Args:
        module: what is imported.
        package: the package on PyPI that has it.
        extra: the extra of fleet-hpc that brings the package.
        what: what cannot be read without it, in the plural.

    Raises:
        SourceError: it is not installed, or cannot be imported.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] != module.partition(".")[0]:
            raise _broken(module, package, cause) from cause
        rule = f"to read {what} takes the package {package}, which is not installed"
        raise SourceError(package, rule, f"pip install 'fleet-hpc[{extra}]', or pip install {package}") from cause
    except ImportError as cause:
        raise _broken(module, package, cause) from cause


def _broken(module: str, package: str, cause: ImportError) -> SourceError:
    rule = f"importing {module} raised {type(cause).__name__}: {cause}"
    return SourceError(package, rule, f"install it anew: pip install --force-reinstall {package}")
