"""A spec's values -> the text of its file, with what a reader should know beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from fleet.spec.from_script.found import Found

_MOST_IN_LINE = 100  # characters
_WORKERS = """\
# A job is one virtual worker, as the script is one process, and uses one device. `virtual_workers: 4` in it would let
# it use up to four, with the weights that DDP has with four processes.
"""


class _Flow(dict[str, Any]):
    """A mapping that is written in one line."""


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


_Dumper.add_representer(_Flow, lambda dumper, value: dumper.represent_mapping("tag:yaml.org,2002:map", value, True))
_Dumper.add_representer(
    list, lambda dumper, value: dumper.represent_sequence("tag:yaml.org,2002:seq", value, _is_flat(value))
)


def spec_of(found: Found, name: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a spec."""
    head = {"name": name, "seed": found.seed}
    data = {"data": dict(found.data)} if found.data else {}
    return head | data | {"jobs": [dict(job) for job in found.jobs], "resources": dict(resources)}


def spec_text(spec: Mapping[str, Any], source: str, told: tuple[str, ...]) -> str:
    """The text of a spec.

    Args:
        spec: its values.
        source: what it was read from.
        told: what a reader should know.
    """
    lines = [f"# What {source} trains. `fleet plan` tells what a run would look like, `fleet run` trains."]
    lines += [f"# Note: {each}." for each in told]
    text = yaml.dump(_flowed(spec), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return "\n".join(lines) + "\n" + text.replace("\njobs:", f"\n{_WORKERS}jobs:", 1)


def _flowed(values: Any, depth: int = 0) -> Any:
    """Values whose inner mappings are written in one line each where they are short."""
    if isinstance(values, Mapping):
        inner = {key: _flowed(each, depth + 1) for key, each in values.items()}
        is_job = "stop" in values
        return _Flow(inner) if depth > 1 and not is_job and len(str(values)) <= _MOST_IN_LINE else inner
    if isinstance(values, (list, tuple)):
        return [_flowed(each, depth + 1) for each in values]
    return values


def _is_flat(values: list[Any]) -> bool:
    return all(not isinstance(each, (list, dict)) for each in values)
