"""Whether arguments fit what is called with them, before and while it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.spec.problem import listed, nearest
from fleet.spec.references import first_line


@dataclass(frozen=True)
class Misfit:
    """One way in which arguments do not fit: the argument (None: all of them), the rule, the nearest name, the mend."""

    argument: str | None
    rule: str
    suggestion: str | None = None
    mend: str = ""


def misfits(
    function: Callable[..., Any], name: str, arguments: Mapping[str, Any], positional: int = 0
) -> Iterator[Misfit]:
    """What in ``arguments`` the signature does not accept.

    Args:
        function: what will be called.
        name: how the messages call it.
        arguments: its keyword arguments.
        positional: how many further arguments it will get by position.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    kinds = inspect.Parameter
    open_ended = any(parameter.kind is kinds.VAR_KEYWORD for parameter in parameters)
    named = [p for p in parameters if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.POSITIONAL_ONLY)][positional:]
    named += [p for p in parameters if p.kind is kinds.KEYWORD_ONLY]
    known = [parameter.name for parameter in named]
    meant = set()
    for key in arguments:
        if key not in known and not open_ended:
            takes = f"it takes {listed(known)}" if known else "it takes none"
            close = nearest(key, known)
            meant.add(close)
            mend = f"rename it to {close}" if close else "take it away"
            yield Misfit(key, f"{name} has no argument {key!r}; {takes}", close, mend)
    for parameter in named:
        if parameter.default is kinds.empty and parameter.name not in {*arguments, *meant}:
            mend = f"add `{parameter.name}: ...` to its arguments; its signature is {signature_of(function, name)}"
            yield Misfit(None, f"{name} needs the argument {parameter.name!r}", parameter.name, mend)


def refused(function: Callable[..., Any], name: str, error: BaseException) -> Misfit:
    """What a call raised, with the signature."""
    mend = f"change its arguments; its signature is {signature_of(function, name)}"
    return Misfit(None, f"{name} raised {type(error).__name__}: {first_line(error)}", mend=mend)


def signature_of(function: Callable[..., Any], name: str, limit: int = 200) -> str:
    """``name(parameter, parameter=default)``, without annotations."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    text = name.rpartition(":")[2] + str(inspect.Signature(plain))
    return text if len(text) <= limit else text[: limit - 4] + "...)"
