"""pydantic's findings -> problems in the words of this project, with the nearest valid key or the section meant."""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue, ValidationError

from fleet.spec.document import Origins
from fleet.spec.problem import ABSENT, KeyPath, Problem, listed, nearest
from fleet.spec.values import MARKS

REPORTED_ELSEWHERE = frozenset(
    {"duplicate_job", "incomplete_job", "nothing_to_train"}
)  # found in the mappings already, with both places

_RULES = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "mapping_type": "must be a mapping (key: value lines)",
    "dict_type": "must be a mapping (key: value lines)",
    "model_type": "must be a mapping (key: value lines)",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "greater_than": "must be more than {gt:g}",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
    "invalid-json-value": "must be a plain value: text, number, true, false, null, list or mapping with text as keys",
    "recursion_loop": "holds itself",
}
_MENDS = {
    "string_type": "put it in quotes if it is meant as text",
    "tuple_type": "write it as a list: [a, b], or lines that begin with -",
    "list_type": "write it as a list: [a, b], or lines that begin with -",
    "mapping_type": "write its keys below it, each as `key: value`",
    "dict_type": "write its keys below it, each as `key: value`",
    "model_type": "write its keys below it, each as `key: value`",
    "float_type": "write a number, without quotes or unit",
    "int_type": "write a whole number, without quotes or unit",
    "greater_than": "give a value above it",
    "finite_number": "leave the key out, or give a large number",
    "invalid-json-value": "write it as a plain value",
}
_BOUNDS = {"greater_than_equal": "ge", "less_than_equal": "le"}


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    base: KeyPath,
    origins: Origins,
    partial: bool = False,
    also: Collection[str] = (),
) -> Iterator[Problem]:
    """The problems that pydantic found.

    Args:
        error: its findings.
        model: what was validated.
        base: the path of the model in the spec.
        origins: where things are written.
        partial: the mapping need not be complete; leave out what is missing.
        also: keys that the mapping may have in the file beside those of the model.
    """
    for finding in error.errors(include_url=False):
        kind = finding["type"]
        if kind in REPORTED_ELSEWHERE or (partial and kind == "missing") or _only_invalid_elements(finding):
            continue
        yield _problem(finding, model, base, origins, also)


def _only_invalid_elements(finding: Any) -> bool:
    """pydantic counts valid elements alone; the invalid ones have problems of their own."""
    return finding["type"] == "too_short" and len(finding["input"]) >= finding["ctx"]["min_length"]


def _problem(finding: Any, model: type[BaseModel], base: KeyPath, origins: Origins, also: Collection[str]) -> Problem:
    kind, context, value = finding["type"], finding.get("ctx", {}), finding["input"]
    inside = _inside(finding["loc"], model)
    path = base + inside
    if kind == "extra_forbidden":
        known = keys_at(model, inside[:-1]) | (set(also) if len(inside) == 1 else set())
        return _unknown_key(path, value, sorted(known), origins)
    if kind == "missing":
        example = example_at(model, inside)
        return origins.problem(path, ABSENT, f"required key {path[-1]} is missing", mend=f"add `{path[-1]}: {example}`")
    if kind in ("too_short", "too_long"):
        return origins.problem(path, value, _length_rule(context), mend="give it as many")
    if kind in _BOUNDS:
        bound = context[_BOUNDS[kind]]
        rule = _RULES[kind].format(**context)
        return origins.problem(
            path, value, rule, str(bound), f"set it to {bound} or {'more' if kind.startswith('g') else 'less'}"
        )
    if kind == "string_pattern_mismatch":
        return _bad_name(path, value, context["pattern"], origins)
    rule = _RULES[kind].format(**context) if kind in _RULES else finding["msg"]
    if "[key]" in finding["loc"] or (kind == "string_type" and not isinstance(path[-1], str) and path[-1] is value):
        rule = "a key here " + rule
    return origins.problem(path, value, rule, context.get("suggestion"), context.get("mend", _MENDS.get(kind, "")))


def _unknown_key(path: KeyPath, value: Any, known: list[str], origins: Origins) -> Problem:
    word = path[-1]
    close = nearest(word, known)
    elsewhere = said_elsewhere(word, value, known)
    if elsewhere is not None:
        return origins.problem(path, value, f"unknown key {word!r}", mend=elsewhere)
    rule = f"unknown key {word!r}; the keys here are {listed(known, limit=24)}"
    if close is None:
        return origins.problem(path, value, rule, mend="take it away")
    override = origins.locate(path)[1].override
    if override is None:
        return origins.problem(path, value, rule, close, f"rename it to {close}")
    suggestion = _corrected(override, str(word), close)
    return origins.problem(path, value, rule, suggestion, f"write --set {suggestion}=...")


def _corrected(override: str, word: str, close: str) -> str:
    """The path of a ``--set`` with one of its parts corrected."""
    parts = override.removeprefix("--set ").partition("=")[0].split(".")
    return ".".join(close if part.strip() == word else part.strip() for part in parts)


def _length_rule(context: Mapping[str, Any]) -> str:
    least, most = context.get("min_length"), context.get("max_length")
    bound = f"at least {least}" if least is not None else f"at most {most}"
    plural = "" if (least or most) == 1 else "s"
    return f"must have {bound} element{plural}, and has {context.get('actual_length', 'more')}"


def _bad_name(path: KeyPath, value: str, pattern: str, origins: Origins) -> Problem:
    if pattern == r"^[a-z]+$":
        rule, suggestion = "must be lower-case letters only", re.sub(r"[^a-z]", "", value.lower()) or "auto"
    else:
        rule = "must begin with a letter or digit and hold only letters, digits and . _ + = -"
        suggestion = re.sub(r"[^A-Za-z0-9._+=-]+", "-", value).strip("-._+=") or "name"
    return origins.problem(path, value, rule, suggestion, f"call it {suggestion}")


def _inside(location: tuple[str | int, ...], model: type[BaseModel]) -> KeyPath:
    """The path without pydantic's own marks.

    They are those of keys, of the kind of a plain value, and of the forms that `seed` and `rehearse.rates` take.
    """
    path = tuple(part for part in location if part not in ("[key]", *MARKS))
    if path[:2] == ("rehearse", "rates"):
        return path[:2] + path[3:]
    options: list[Any] = [model]
    for end, part in enumerate(path):
        if JsonValue in options:
            return path[:end] + path[end + 1 :: 2]  # mark, key, mark, key ...
        options = [child for option in options for child in _children(option, part)]
    return path


def keys_at(model: type[BaseModel], path: KeyPath) -> set[str]:
    """The keys that the mapping at ``path`` may have; none if it may have any."""
    return {name for found in models_at(model, path) for name in found.model_fields}


def models_at(model: type[BaseModel], path: KeyPath) -> list[type[BaseModel]]:
    """The models that may stand at ``path``."""
    options: list[Any] = [model]
    for part in path:
        options = [child for option in options for child in _children(option, part)]
    return [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]


def example_at(model: type[BaseModel], path: KeyPath) -> str:
    """An example of the value at ``path``: from the example of what holds it, otherwise its own."""
    for found in models_at(model, path[:-2]):
        info = found.model_fields.get(str(path[-2])) if len(path) > 1 else None
        if (
            info is not None
            and info.examples
            and isinstance(info.examples[0], Mapping)
            and path[-1] in info.examples[0]
        ):
            return str(info.examples[0][path[-1]])
    for found in models_at(model, path[:-1]):
        info = found.model_fields.get(str(path[-1]))
        if info is not None and info.examples:
            return str(info.examples[0])
    return "..."


def _children(option: Any, part: str | int) -> list[Any]:
    if isinstance(option, type) and issubclass(option, BaseModel):
        info = option.model_fields.get(str(part))
        return _alternatives(info.annotation) if info else []
    arguments = get_args(option)
    if get_origin(option) is tuple:
        return _alternatives(arguments[0])
    return _alternatives(arguments[1]) if len(arguments) == 2 else []


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [found for option in get_args(annotation) for found in _alternatives(option)]
    return [annotation]


_EPOCHS = "write it as stop: {{epochs: {value}}}"
_RATE = "write it among the optimizer's arguments: optimizer: {{name: SGD, arguments: {{lr: {value}}}}}"
_OF_OPTIMIZER = "write it among the optimizer's arguments: optimizer: {{name: SGD, arguments: {{{word}: {value}}}}}"
_MODEL = "write it with the model: model: {{name: ..., arguments: {value}}}"
_OPTIMIZER = "write it with the optimizer: optimizer: {{name: ..., arguments: {value}}}"
_WORKERS = "the workers that divide a step's samples are virtual: write virtual_workers: {value}"
_DEVICES = "the policy says how many devices a job has; it has so many at least with minimum_devices: {value}"
_PRECISION = "write autocast: bfloat16"
_CLIPPED = "write clip_norm: {value}"
_ACCUMULATED = "write accumulate: {value}"
_OF_RUN = "it holds for all jobs: write it beside jobs"
_WORDS: Mapping[str, tuple[str, ...]] = {
    _EPOCHS: ("epochs", "max_epochs", "num_epochs", "n_epochs", "train_epochs"),
    _RATE: ("lr", "learning_rate"),
    _OF_OPTIMIZER: ("momentum", "weight_decay", "betas", "nesterov"),
    _MODEL: ("arguments", "args", "kwargs", "params", "model_arguments", "model_args", "model_kwargs"),
    _OPTIMIZER: ("optimizer_arguments", "optimizer_args", "optimizer_kwargs"),
    "rename it to schedule": ("scheduler", "lr_scheduler", "lr_schedule"),
    _WORKERS: ("workers", "n_workers", "world_size", "num_processes"),
    _DEVICES: ("gpus", "n_gpus", "num_gpus", "devices", "num_devices"),
    "name a section of data: data: NAME": ("dataset", "data_set"),
    _PRECISION: ("amp", "mixed_precision", "precision", "bf16", "fp16"),
    _CLIPPED: ("grad_clip", "gradient_clip_val", "max_grad_norm", "clip_grad_norm"),
    _ACCUMULATED: ("accumulation_steps", "gradient_accumulation_steps", "accumulate_grad_batches"),
}
_IN_JOB = {word: mend for mend, words in _WORDS.items() for word in words}
_RANGES = {"normal": "uniform", "log_normal": "log_uniform", "lognormal": "log_uniform"}
"""Distributions without ends -> the one that a search draws from instead."""
_IN_RUN = ("policy", "resources", "checkpoints", "determinism")
_OF_JOBS = (
    "model",
    "task",
    "optimizer",
    "schedule",
    "loss",
    "metrics",
    "batch_size",
    "virtual_workers",
    "stop",
    "autocast",
)
_SHOWN = 40
"""Characters of a value."""


def said_elsewhere(word: object, value: object, known: Collection[str]) -> str | None:
    """Return the mend of a key that is said otherwise here, or in another section; None if it is not known.

    known: the keys that may stand where it stands.
    """
    name = str(word).lower().replace("-", "_")
    told = f"{value}" if len(f"{value}") <= _SHOWN else "..."
    mend = _IN_JOB[name].format(word=name, value=told) if name in _IN_JOB else None
    if "log_uniform" in known and name in _RANGES:
        return f"a search draws from a range: write {_RANGES[name]}: [low, high]"
    if "virtual_workers" in known:
        return _OF_RUN if name in _IN_RUN else mend
    if "jobs" in known and (mend is not None or name in _OF_JOBS):
        return (f"{mend}," if mend else "write it") + " in a job, or below defaults for all of them"
    return None
