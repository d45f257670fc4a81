"""The tables of the reference of the spec, written from the models themselves.

``python -m tests.docs.support.spec_tables docs/reference/spec.md`` renews the tables in that file,
between its marks; the text around them is left alone.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from fleet.spec.data import Data, Normalise, Order, Source, Transform
from fleet.spec.distributions import Blocks, Distribution
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.expansion import Grid, Sample
from fleet.spec.job import ChangingBatch, Job, ServiceAgreement, Stop
from fleet.spec.metrics import NamedMetric
from fleet.spec.optimizer import Optimizer, ParameterGroup, Schedule, WarmUp
from fleet.spec.resources import Energy, Resources, Store
from fleet.spec.search import Budget, SearchSpec, Stopping
from fleet.spec.sections import Checkpoints, Determinism, Policy, Profile, Rehearse
from fleet.spec.values import Named, Seeds

MODELS: tuple[type[BaseModel], ...] = (
    EnsembleSpec,
    Data,
    Source,
    Transform,
    Normalise,
    Order,
    Job,
    Named,
    NamedMetric,
    Schedule,
    WarmUp,
    Optimizer,
    ParameterGroup,
    Seeds,
    Stop,
    ChangingBatch,
    ServiceAgreement,
    Grid,
    Sample,
    Distribution,
    Blocks,
    SearchSpec,
    Stopping,
    Budget,
    Resources,
    Store,
    Energy,
    Determinism,
    Policy,
    Checkpoints,
    Profile,
    Rehearse,
)
_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PLAIN = {"string": "text", "boolean": "true or false", "null": "null"}


def renewed(page: str) -> str:
    """The page with its tables as the models say.

    Raises:
        ValueError: a model has no table in the page, or a table no model.
    """
    tables = {model.__name__: table(model) for model in MODELS}
    marked = [match[2] for match in _MARKED.finditer(page)]
    if sorted(marked) != sorted(tables):
        raise ValueError(f"tables and models differ: {sorted(set(marked) ^ set(tables)) or 'a table stands twice'}")
    return _MARKED.sub(lambda match: match[1] + tables[match[2]] + match[3], page)


@cache  # tests ask for it again and again, and pydantic takes half a second
def table(model: type[BaseModel]) -> str:
    """A Markdown table of the model's keys."""
    schema = model.model_json_schema(mode="validation")
    shared = schema.get("$defs", {})
    schema = shared[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    rows = ["| key | type | default | meaning | example |", "|---|---|---|---|---|"]
    for key, entry in schema["properties"].items():
        info = model.model_fields[key]
        default = _default(model, key, key in schema.get("required", ()))
        example = f"`{_yaml((info.examples or ['...'])[0])}`"
        cells = (f"`{key}`", kind(entry, shared), default, info.description or "", example)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _default(model: type[BaseModel], key: str, required: bool) -> str:
    if required:
        return "needed"
    default = model.model_fields[key].get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return "its defaults"
    return f"`{_yaml(default)}`"


def _yaml(value: Any) -> str:
    """A value as it is written in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(child)}" for key, child in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_yaml(child) for child in value) + "]"
    if isinstance(value, str):
        return value if re.fullmatch(r"[\w.][\w.-]*", value) else json.dumps(value)
    return json.dumps(value)


def kind(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    """The type of a JSON schema in words."""
    options = entry.get("anyOf") or entry.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(kind(option, shared) for option in options))
    if "$ref" in entry:
        return _referenced(entry["$ref"].rpartition("/")[2])
    if "const" in entry:
        return f"`{entry['const']}`"
    form = entry.get("type")
    if form in ("integer", "number"):
        return ("whole number" if form == "integer" else "number") + _bounds(entry)
    if form == "array":
        return _array(entry, shared)
    if form == "object":
        inner = entry.get("additionalProperties") or next(iter(entry.get("patternProperties", {}).values()), None)
        return "mapping" if not isinstance(inner, dict) else f"mapping of {kind(inner, shared)}"
    return _PLAIN.get(str(form), "any plain value")


def _referenced(name: str) -> str:
    return "any plain value" if name == "JsonValue" else f"[{name}](#{name.lower()})"


def _array(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    if "prefixItems" in entry:
        return "[" + ", ".join(kind(item, shared) for item in entry["prefixItems"]) + "]"
    return f"list of {kind(entry.get('items', {}), shared)}"


def _bounds(entry: Mapping[str, Any]) -> str:
    low, high = entry.get("minimum"), entry.get("maximum")
    above = entry.get("exclusiveMinimum")
    parts = [f" > {above:g}"] if above is not None else [f" ≥ {low:g}"] if low is not None and low > -(2**53) else []
    return "".join(parts + ([f", ≤ {high:,}"] if high is not None and high < 10**8 else []))


def main(arguments: list[str]) -> int:
    """Renew the tables of the named files."""
    for name in arguments:
        file = pathlib.Path(name)
        file.write_text(renewed(file.read_text(encoding="utf-8")), encoding="utf-8")
    return 0 if arguments else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
