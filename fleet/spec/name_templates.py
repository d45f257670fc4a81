"""Templates of the names of many jobs: `cnn-{width}-{index}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fleet.spec.origins import Origins
from fleet.spec.problem import Path, Problem, nearest

_PLACEHOLDER = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_NUMBER_FORMAT = re.compile(r"0?\d?\d?(\.\d\d?)?[deEfgG%]")


def template_problems(
    template: str, paths: Sequence[str], at: Path, origins: Origins, number: str = "index"
) -> Iterator[Problem]:
    """What is wrong with a template.

    Args:
        paths: the varied paths.
        at: where the template stands.
        number: the placeholder of the job's number.
    """
    known = placeholders(paths, number)
    for name, style in _PLACEHOLDER.findall(template):
        if name not in known:
            rule = f"the name has no {{{name}}}; it may have " + ", ".join(f"{{{key}}}" for key in known)
            yield origins.problem(at, template, rule, f"{{{nearest(name, known) or number}}}", "use one of these")
        elif known[name] is None and name != number:
            rule = f"{{{name}}} could be several paths of over"
            yield origins.problem(at, template, rule, f"{{{number}}}", "write the whole path in the braces")
        elif style and not _NUMBER_FORMAT.fullmatch(style):
            rule = f"{style!r} is not a format of a number"
            yield origins.problem(at, template, rule, f"{{{name}:.3g}}", "use one such as .3g or 03d")
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        yield origins.problem(at, template, "a brace without its partner", mend="write placeholders as {width}")


def has_placeholder(template: str, name: str) -> bool:
    """Whether a template has this placeholder, formatted or not."""
    return name in (found for found, _ in _PLACEHOLDER.findall(template))


def placeholders(paths: Sequence[str], number: str = "index") -> dict[str, str | None]:
    """Placeholder -> path in over; None if several paths end in it, and for the number."""
    short: dict[str, str | None] = {number: None}
    for path in paths:
        last = path.rpartition(".")[2]
        short[last] = None if last in short else path
    return {**{path: path for path in paths}, **short}


def filled(template: str, index: int, values: Mapping[str, Any], number: str = "index") -> str:
    """The name of the job with this number and these values."""
    known = placeholders(list(values), number)

    def text(match: re.Match[str]) -> str:
        path = known[match[1]]
        value = index if path is None else values[path]
        return format(value, match[2]) if match[2] and isinstance(value, (int, float)) else _as_name(value)

    try:
        return _PLACEHOLDER.sub(text, template)
    except ValueError:  # a format such as "d" with a fraction: the number as it is
        return _PLACEHOLDER.sub(
            lambda match: _as_name(index if known[match[1]] is None else values[known[match[1]] or ""]), template
        )


def _as_name(value: Any) -> str:
    """A value as a part of a job's name."""
    if isinstance(value, Mapping):
        value = value.get("name", "-".join(map(str, value)))
    if isinstance(value, (list, tuple)):
        return "-".join(_as_name(child) for child in value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return str(value).rpartition(":")[2]


def may_be_filled(template: str, name: str) -> bool:
    """Whether a template may give a name, whatever the values."""
    pieces = re.split(r"\{[^{}]*\}", template)
    return re.fullmatch(".*".join(re.escape(piece) for piece in pieces), name, re.DOTALL) is not None
