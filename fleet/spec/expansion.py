"""The entries of ``jobs`` and the trials of a search -> one mapping a job: defaults, grids, samples, folds, names."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, field_validator

from fleet.spec.distributions import Distribution, checked, drawn
from fleet.spec.document import JobOrigin, Origins
from fleet.spec.problem import ABSENT, KeyPath, Problem, nearest
from fleet.spec.validation import problems_of
from fleet.spec.values import MOST_DRAWN, MOST_FOLDS, MOST_JOBS, NAMED_KEYS, Jobs, Plain, Section, Seed, Text

_SPLIT = "use smaller grids and samples, or several specs"


class Grid(Section):
    """One job for each combination of the values in ``over``; the other keys are a job's keys."""

    model_config = ConfigDict(extra="allow")

    name: Text = Field(
        description="Template of the names: `{width}` stands for the value of the path in `over` whose last part is "
        "width, `{index}` for the job's number from 0, `{lr:.2g}` for a number so formatted.",
        examples=["cnn-{width}"],
    )
    over: Mapping[Text, tuple[Plain, ...]] = Field(
        description="Dotted path of a job's key -> its values. The last path varies fastest.",
        examples=[{"model.arguments.width": [8, 16]}],
    )


class Sample(Section):
    """``count`` jobs with drawn values; the other keys are a job's keys.

    ``seed`` seeds the draws; the jobs' own seed is written in ``over`` or ``defaults``.
    """

    model_config = ConfigDict(extra="allow")

    name: Text = Field(description="Template of the names, as for a grid.", examples=["net-{index}"])
    count: Jobs = Field(description="The number of jobs.", examples=[4])
    seed: Seed | None = Field(default=None, description="Seed of the draws; null: the ensemble's `seed`.", examples=[1])
    over: Mapping[Text, Distribution] = Field(
        description="Dotted path of a job's key -> the distribution from which its value is drawn.",
        examples=[{"optimizer.arguments.lr": {"log_uniform": [0.001, 0.1]}}],
    )

    _conditions = field_validator("over")(checked)


@dataclass
class Expansion:
    """The jobs as mappings, where each comes from, and what is wrong with the entries."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    origins: list[JobOrigin] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    drawn: int = 0  # values of samples, at most
    unfinished: list[tuple[KeyPath, dict[str, Any]]] = field(
        default_factory=list
    )  # job keys of entries that could not be expanded


def expand(entries: list[Any], defaults: Mapping[str, Any], seed: int, origins: Origins) -> Expansion:
    """Write out the entries of ``jobs``.

    Args:
        entries: the list as it stands in the file.
        defaults: the keys that every job has unless it says otherwise.
        seed: the ensemble's, for jobs and samples without their own.
        origins: where things are written, for the problems.
    """
    result = Expansion()
    for position, entry in enumerate(entries):
        path: KeyPath = ("jobs", position)
        if isinstance(entry, Mapping) and ("grid" in entry or "sample" in entry):
            _expand_many(path, entry, {"seed": seed, **defaults}, seed, origins, result)
        elif isinstance(entry, Mapping) and len(result.jobs) >= MOST_JOBS:
            rule = f"the spec has more than {MOST_JOBS:,} jobs"
            return Expansion(problems=[*result.problems, origins.problem(path, ABSENT, rule, mend=_SPLIT)])
        elif isinstance(entry, Mapping):
            _add(result, laid_over({"seed": seed, **defaults}, entry), JobOrigin(path), origins)
        else:
            mend = "write a job as `- name: ...` with its keys below, or a grid or sample"
            result.problems.append(
                origins.problem(path, entry, "a job must be a mapping (key: value lines)", mend=mend)
            )
    return result


def _expand_many(
    path: KeyPath, entry: Mapping[str, Any], defaults: Mapping[str, Any], seed: int, origins: Origins, result: Expansion
) -> None:
    kind = "grid" if "grid" in entry else "sample"
    for key in entry:
        if key != kind:
            rule, mend = f"a {kind} stands alone in its entry", f"move `{key}` into the {kind}"
            result.problems.append(origins.problem(path + (key,), entry[key], rule, mend=mend))
    base, body = path + (kind,), entry[kind]
    header: type[Grid] | type[Sample] = Grid if kind == "grid" else Sample
    try:
        made = header.model_validate(body)
    except ValidationError as error:
        result.problems.extend(problems_of(error, header, base, origins))
        if isinstance(body, Mapping):
            result.unfinished.append((base, _own_keys(body, header)))
        return
    fixed = laid_over(defaults, _own_keys(body, header))
    fixed = with_varied_seeds(fixed, made.over)
    problems = [
        *over_problems(made.over, base, fixed, origins),
        *_empty_problems(made, base, origins),
        *_size_problems(made, base, fixed, origins, result),
        *template_problems(made.name, list(made.over), base + ("name",), origins),
    ]
    result.problems.extend(problems)
    if problems:
        result.unfinished.append((base, _own_keys(body, header)))
        return
    combinations = _grid(made) if isinstance(made, Grid) else _sample(made, seed)
    for index, (values, sources) in enumerate(combinations):
        job = copy.deepcopy(fixed)
        for dotted, value in values.items():
            set_value(job, dotted.split("."), copy.deepcopy(value))
        job["name"] = filled(made.name, index, values)
        over: dict[KeyPath, KeyPath] = {
            tuple(dotted.split(".")): base + ("over", *source) for dotted, source in sources.items()
        }
        _add(result, job, JobOrigin(base, over), origins)


def _add(result: Expansion, job: dict[str, Any], origin: JobOrigin, origins: Origins) -> None:
    """Add a job, or one for each of its folds."""
    jobs = list(folded(job, MOST_JOBS - len(result.jobs)))
    if not jobs:
        result.problems.append(_too_many_folds(origin.base, job["folds"], origins))
    result.jobs += jobs
    result.origins += [origin] * len(jobs)


def _own_keys(body: Mapping[str, Any], header: type[Section]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in header.model_fields}


Combination = tuple[dict[str, Any], dict[str, KeyPath]]


def _grid(grid: Grid) -> Iterator[Combination]:
    for chosen in itertools.product(*(list(enumerate(values)) for values in grid.over.values())):
        values = {path: value for path, (_, value) in zip(grid.over, chosen)}
        yield values, {path: (path, number) for path, (number, _) in zip(grid.over, chosen)}


def _sample(sample: Sample, seed: int) -> Iterator[Combination]:
    own = seed if sample.seed is None else sample.seed
    for index in range(sample.count):
        yield drawn(sample.over, own, index), {path: (path,) for path in sample.over}


def over_problems(paths: Iterable[str], base: KeyPath, fixed: Mapping[str, Any], origins: Origins) -> Iterator[Problem]:
    """Yield what is wrong with the paths that vary in the job `fixed`; they stand at `over` in `base`."""
    paths = list(paths)
    for path in paths:
        at, parts = base + ("over", path), path.split(".")
        if not all(parts) or parts[0] in ("name", "over", "count"):
            yield origins.problem(
                at, ABSENT, "not the path of a job's key", mend="write a dotted path such as optimizer.arguments.lr"
            )
        for other in paths:
            if path.startswith(other + "."):
                mend = f"vary {other} or {path}, not both"
                if other.rpartition(".")[2] in NAMED_KEYS:
                    mend += (
                        f"; or vary {other}.name, such as {{choice: [...]}}, and {path} only where it is meant, by "
                        f"`when: {{{other}.name: ...}}` beside its distribution"
                    )
                yield origins.problem(at, ABSENT, f"lies inside {other}, which is varied too", mend=mend)
        blocked = _blocked(fixed, parts)
        if blocked:
            yield origins.problem(
                at, ABSENT, f"{blocked} holds a plain value, so that nothing can be set inside it", blocked
            )


def _empty_problems(made: Grid | Sample, base: KeyPath, origins: Origins) -> Iterator[Problem]:
    for path, values in made.over.items():
        if isinstance(made, Grid) and not values:
            rule = "no values: the grid would be empty"
            yield origins.problem(base + ("over", path), [], rule, mend="give at least one value")


def _size_problems(
    made: Grid | Sample, base: KeyPath, fixed: Mapping[str, Any], origins: Origins, result: Expansion
) -> Iterator[Problem]:
    """Yield whether the spec has too much with this entry; asked before anything of it is made."""
    own = math.prod(len(values) for values in made.over.values()) if isinstance(made, Grid) else made.count
    jobs, at = len(result.jobs) + own, base + ("over",)
    if jobs > MOST_JOBS:
        yield origins.problem(at, ABSENT, f"with it the spec has {jobs:,} jobs, more than {MOST_JOBS:,}", mend=_SPLIT)
    elif len(result.jobs) + own * (1 if {"folds", "fold"} & set(made.over) else folds_of(fixed)) > MOST_JOBS:
        yield _too_many_folds(base, fixed["folds"], origins)
    elif isinstance(made, Sample):
        result.drawn += own * sum(what.most for what in made.over.values())
        if result.drawn > MOST_DRAWN:
            rule = f"with it samples draw up to {result.drawn:,} values, more than {MOST_DRAWN:,}"
            yield origins.problem(at, ABSENT, rule, mend="draw shorter lists, or fewer jobs")


def _too_many_folds(base: KeyPath, folds: Any, origins: Origins) -> Problem:
    rule = f"with these folds the spec has more than {MOST_JOBS:,} jobs"
    return origins.problem(base + ("folds",), folds, rule, mend=_SPLIT)


def _blocked(fixed: Mapping[str, Any], parts: list[str]) -> str | None:
    """The first part of the path at which a plain value stands in the way."""
    at: Any = fixed
    for number, part in enumerate(parts[:-1]):
        at = at.get(part)
        if at is None or (isinstance(at, str) and part in NAMED_KEYS):
            return None
        if not isinstance(at, Mapping):
            return ".".join(parts[: number + 1])
    return None


def set_value(job: dict[str, Any], parts: list[str], value: Any) -> None:
    """Set one value of a job's mapping, at the parts of a dotted path."""
    at = job
    for part in parts[:-1]:
        child = at.get(part)
        at[part] = {"name": child} if isinstance(child, str) else {} if child is None else child
        at = at[part]
    at[parts[-1]] = value


def laid_over(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A job's keys over the defaults; a seed that it leaves out of two is the one that stands for both there."""
    if isinstance(own.get("seed"), Mapping):
        defaults = {**defaults, "seed": seeds_apart(defaults["seed"])}
    return merged(defaults, own)


def with_varied_seeds(job: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The job's mapping, with its seed as two where one of them varies."""
    varied = any(path in ("seed.weights", "seed.order") for path in paths)
    return {**job, "seed": seeds_apart(job.get("seed"))} if varied else dict(job)


def seeds_apart(seed: Any) -> Any:
    """One seed as the two that it stands for."""
    return {"weights": seed, "order": seed} if type(seed) is int else seed


def merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` laid over ``defaults``, key by key and deep.

    A thing with another name than the default's replaces it whole (the arguments of one optimizer are not those of
    another); so does whatever is not a mapping. Null takes a default away.
    """
    result = copy.deepcopy(dict(defaults))
    for key, value in own.items():
        below, above = _as_mapping(key, result.get(key)), _as_mapping(key, value)
        if (
            isinstance(below, Mapping)
            and isinstance(above, Mapping)
            and above.get("name", below.get("name")) == below.get("name")
        ):
            result[key] = merged(below, above)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _as_mapping(key: Any, value: Any) -> Any:
    return {"name": value} if key in NAMED_KEYS and isinstance(value, str) else value


_PLACEHOLDER = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_NUMBER_FORMAT = re.compile(r"0?\d?\d?(\.\d\d?)?[deEfgG%]")


def template_problems(
    template: str, paths: Sequence[str], at: KeyPath, origins: Origins, number: str = "index"
) -> Iterator[Problem]:
    """Yield what is wrong with a template.

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
    """Return whether a template has this placeholder, formatted or not."""
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
    """Return whether a template may give a name, whatever the values."""
    pieces = re.split(r"\{[^{}]*\}", template)
    return re.fullmatch(".*".join(re.escape(piece) for piece in pieces), name, re.DOTALL) is not None


def folded(job: Mapping[str, Any], room: int) -> Iterator[dict[str, Any]]:
    """The jobs that a mapping of a job's keys stands for: itself, unless it has `folds` and names none of them.

    What is wrong with its keys is left for whoever looks at the jobs.

    Args:
        job: all keys, defaults laid under.
        room: how many jobs there may be; none come if there are more.
    """
    count, name = folds_of(job), job.get("name")
    if count == 1 or not isinstance(name, str):
        yield dict(job)
    elif count <= room:
        for fold in range(count):
            yield {**copy.deepcopy(dict(job)), "fold": fold, "name": f"{name}-fold-{fold}"}


def folds_of(job: Mapping[str, Any]) -> int:
    """Return how many jobs the mapping stands for, as far as its folds are such as can be."""
    count = job.get("folds")
    if isinstance(count, int) and 2 <= count <= MOST_FOLDS and job.get("fold") is None:
        return count
    return 1


NUMBER = "trial"
"""The placeholder of a trial's number in the template of the names."""


def trial_keys(template: str, job: Mapping[str, Any], trial: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a trial's job, not validated.

    Args:
        template: of the trials' names.
        job: what the trials share.
        trial: its number.
        values: dotted path -> its value.
    """
    keys = with_varied_seeds(copy.deepcopy(dict(job)), values)
    for path, value in values.items():
        set_value(keys, path.split("."), copy.deepcopy(value))
    return {**keys, "name": trial_name(template, trial, values)}


def trial_name(template: str, trial: int, values: Mapping[str, Any]) -> str:
    """The name of a trial's job."""
    return filled(template, trial, values, NUMBER)


def trial_origin(paths: Iterable[str]) -> JobOrigin:
    """Return where a trial's keys are written, where those at `paths` vary."""
    over: dict[KeyPath, KeyPath] = {tuple(path.split(".")): ("search", "over", path) for path in paths}
    return JobOrigin(("search", "job"), {("name",): ("search", "name"), **over})
