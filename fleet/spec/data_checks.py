"""What of a data section can be known only by importing: its sources and transforms."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.spec.calls import misfits
from fleet.spec.origins import Origins
from fleet.spec.problem import ABSENT, Path, Problem, nearest
from fleet.spec.references import ReferenceProblem, resolve
from fleet.spec.sections import Data, Source, Transform
from fleet.spec.values import Named


def data_problems(name: str, data: Data, origins: Origins) -> Iterator[Problem]:
    """The problems of one data section; no file of samples is opened."""
    base: Path = ("data", name)
    yield from _source_problems(base + ("train",), data.train, origins)
    if data.held_out is not None:
        yield from _source_problems(base + ("held_out",), data.held_out, origins)
    for key, steps in (("transforms", data.transforms), ("held_out_transforms", data.held_out_transforms)):
        for number, step in enumerate(steps):
            yield from _transform_problems(base + (key, number), step, origins)
    yield from _collate_problems(base, data, origins)
    weights = data.order.weights
    if weights is not None and weights != "balanced":
        try:
            resolve(weights)
        except ReferenceProblem as error:
            near = error.suggestion or nearest(weights, ["balanced"])
            yield origins.problem(base + ("order", "weights"), weights, error.rule, near, error.mend)


def _collate_problems(base: Path, data: Data, origins: Origins) -> Iterator[Problem]:
    """What does not go with samples of any shape, and what is wrong with that which joins them."""
    if data.collate is None:
        if data.sample_bytes is not None:
            rule, mend = "only samples that are collated are packed into bytes", "take it away, or add collate: pad"
            yield origins.problem(base + ("sample_bytes",), data.sample_bytes, rule, mend=mend)
        return
    for key in ("transforms", "held_out_transforms", "normalise"):
        if getattr(data, key):
            rule = "samples that are collated have any shape: they come as the data set gives them"
            yield origins.problem(base + (key,), ABSENT, rule, mend="do that in the data set, or in collate")
    for key, source in (("train", data.train), ("held_out", data.held_out)):
        if source is not None and ":" not in source.source:
            rule = f"the samples of {source.source} have one shape already, and need no collate"
            mend = "take collate away, or write module:Name of a map-style data set"
            yield origins.problem(base + (key, "source"), source.source, rule, mend=mend)
    yield from _named_problems(base + ("collate",), data.collate, origins)


def _named_problems(base: Path, named: Named, origins: Origins) -> Iterator[Problem]:
    from fleet.spec.collating import built_in_collates  # loads torch, which reading a spec does not need

    if ":" not in named.name and named.name not in built_in_collates():
        rule = f"{named.name!r} joins no samples; built in is pad"
        mend = "write pad, or module:Name of a function of a list of samples"
        yield origins.problem(base + ("name",), named.name, rule, nearest(named.name, built_in_collates()), mend)
        return
    try:
        found = built_in_collates().get(named.name) or resolve(named.name)
    except ReferenceProblem as error:
        yield origins.problem(base + ("name",), named.name, error.rule, error.suggestion, error.mend)
        return
    if not callable(found):
        rule, mend = f"a {type(found).__name__} cannot be called", "name a function of a list of samples, or a class"
        yield origins.problem(base + ("name",), named.name, rule, mend=mend)
        return
    positional = 0 if isinstance(found, type) or named.arguments else 1
    for misfit in misfits(found, named.name, named.arguments, positional):
        path = base + ("arguments",) + ((misfit.argument,) if misfit.argument else ())
        value = named.arguments[misfit.argument] if misfit.argument else dict(named.arguments)
        yield origins.problem(path, value, misfit.rule, misfit.suggestion, misfit.mend)


def _source_problems(base: Path, source: Source, origins: Origins) -> Iterator[Problem]:
    from preprocess.sources.source import built_in_sources  # here, so that reading a spec does not load the data path

    built_in = built_in_sources()
    at = base + ("source",)
    if ":" not in source.source and source.source not in built_in:
        rule = f"{source.source!r} is not a source; built in are {', '.join(sorted(built_in))}"
        mend = "write one of these, or module:Name of a map-style data set"
        yield origins.problem(at, source.source, rule, nearest(source.source, built_in), mend)
        return
    try:
        found = resolve(source.source) if ":" in source.source else built_in[source.source]
    except ReferenceProblem as error:
        yield origins.problem(at, source.source, error.rule, error.suggestion, error.mend)
        return
    if not callable(found):
        mend = "name a class or function that gives the data set"
        yield origins.problem(at, source.source, f"a {type(found).__name__} cannot be called", mend=mend)
        return
    for misfit in misfits(found, source.source, source.arguments):
        path = base + ("arguments",) + ((misfit.argument,) if misfit.argument else ())
        value = source.arguments[misfit.argument] if misfit.argument else dict(source.arguments)
        yield origins.problem(path, value, misfit.rule, misfit.suggestion, misfit.mend)


def _transform_problems(base: Path, step: Transform, origins: Origins) -> Iterator[Problem]:
    from preprocess.samples.errors import TransformError
    from preprocess.transforms.transform import build_transforms, built_in_transforms

    try:
        build_transforms([step.step])
    except TransformError as error:
        suggestion = nearest(step.name, built_in_transforms()) if error.value == step.name else None
        yield origins.problem(base, step.step, error.rule, suggestion, error.mend)
