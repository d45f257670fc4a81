"""Checks of a well-formed spec that take imports, other sections or the data: whether it can be trained."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from fleet.spec.data import Data, Source, Transform
from fleet.spec.directions import best_problems, direction_problems, search_direction_problems
from fleet.spec.document import Origins
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import Job
from fleet.spec.metrics import metric_name
from fleet.spec.plugins import BadPart
from fleet.spec.problem import ABSENT, KeyPath, Problem, SpecError, in_order, listed, nearest
from fleet.spec.references import ReferenceProblem, misfits, resolve
from fleet.spec.run_length import Length, length_misfits, too_short
from fleet.spec.search import OPERATIONS
from fleet.spec.sections import profile_files
from fleet.spec.trials import first_trial, most_workers, with_likely_trials
from preprocess.files.modules import at_home

DEVICES = ("auto", "cpu", "cuda", "hpu", "mps", "mtia", "npu", "xpu")
"""What trainers may train on: `auto`, or a kind of device as torch names it."""

Lengths = Mapping[str, "tuple[int, int | None]"]


def check(spec: EnsembleSpec, lengths: Lengths | None = None) -> tuple[Problem, ...]:
    """Everything that is wrong with a well-formed spec; empty if nothing is.

    Modules of the spec are imported, models built without memory for their weights, no data opened and nothing trained.
    The process-wide random generators are left as they were.

    Args:
        spec: the spec.
        lengths: for each data set its samples (to train on, held out or None), where the caller knows them.
    """
    from fleet.spec.job_checks import kept_random_state  # loads torch, which reading a spec does not need
    from fleet.spec.subsets import part_problems
    from trainers.repeatable.process_settings import no_exit

    problems = [*_resource_problems(spec), *_file_problems(spec), *_rate_problems(spec)]
    with at_home(spec.folder), kept_random_state(), no_exit():
        problems += [
            *_policy_problems(spec),
            *_minimum_problems(spec),
            *_service_problems(spec),
            *_data_problems(spec, lengths or {}),
            *_search_problems(spec),
        ]
        whole = with_likely_trials(spec)
        problems += _object_problems(whole)
        for position, job in enumerate(whole.jobs):
            problems += part_problems(whole, position, _length_of(job, lengths or {}))
            problems += _link_problems(whole, position, job, lengths or {})
        problems += best_problems(whole)
    return in_order(problems)


def schedule_notes(spec: EnsembleSpec, lengths: Lengths) -> tuple[str, ...]:
    """Sentences on jobs, and likely trials, whose learning-rate schedules are not as long as their runs.

    Args:
        lengths: see `check`.
    """
    own, told = {job.name for job in spec.jobs}, dict[str, str]()
    for job in with_likely_trials(spec).jobs:
        for text in length_misfits(job, Length.of(job, _own_length(job, _length_of(job, lengths)))):
            told.setdefault(text, f"job {job.name}" if job.name in own else f"trials such as {job.name}")
    return tuple(f"{who}: {text}" for text, who in told.items())


def _length_of(job: Job, lengths: Lengths) -> int | None:
    """Training samples of the job's data set, where the caller knows them."""
    return lengths[job.data][0] if job.data is not None and job.data in lengths else None


def _resource_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    workers, trainers = most_workers(spec), spec.resources.trainers
    if trainers is not None and trainers > workers:
        rule = f"more than the {workers} virtual workers of all jobs together: {trainers - workers} could never work"
        mend = f"set trainers to at most {workers}, or give jobs more virtual_workers"
        yield spec.origins.problem(("resources", "trainers"), trainers, rule, str(workers), mend)
    yield from _lending_problems(spec)
    device = spec.resources.device
    if device not in DEVICES:
        rule = f"not a kind of device; the kinds are {', '.join(DEVICES)}"
        mend = "write one of these (which device of its kind a trainer gets is decided by the launch)"
        yield spec.origins.problem(("resources", "device"), device, rule, nearest(device, DEVICES) or "auto", mend)


def _lending_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """Trainers that shall prepare samples, where there are too few, or samples are read block by block."""
    asked, trainers = spec.resources.preparing_trainers, spec.resources.trainers
    path = ("resources", "preparing_trainers")
    if trainers is not None and asked >= trainers:
        rule = (
            f"one of the {trainers} trainers has a network whenever samples are needed: {trainers - 1} can prepare them"
        )
        yield spec.origins.problem(path, asked, rule, str(trainers - 1), f"set it to at most {trainers - 1}")
    blocks = [name for name, data in spec.data.items() if data.order.shuffle == "blocks"]
    if asked and blocks:
        rule = (
            f"the order of {blocks[0]} goes by blocks, which one preprocessor reads whole: others would read them again"
        )
        mend = f"set it to 0, or let data.{blocks[0]}.order.shuffle be samples"
        yield spec.origins.problem(path, asked, rule, "0", mend)


def _policy_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    from fleet.spec.policies import policy  # here, so that reading a spec does not load the schedulers

    try:
        policy(spec.policy.name, **spec.policy.parameters)
    except BadPart as error:
        (wrong,) = error.misfits
        yield spec.origins.problem(("policy", "name"), spec.policy.name, wrong.rule, wrong.suggestion, wrong.mend)
    except ValueError as error:
        mend = "correct policy.name or policy.parameters"
        yield spec.origins.problem(("policy",), spec.policy.model_dump(mode="json"), str(error), mend=mend)


def _is_known(spec: EnsembleSpec) -> bool:
    """Return whether there is such a policy; otherwise that is the problem to tell."""
    from fleet.spec.policies import policy_class

    try:
        return bool(policy_class(spec.policy.name))
    except ValueError:
        return False


def _minimum_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """Jobs with `minimum_devices`, where the policy does not keep to that."""
    from fleet.spec.policies import breaks_minimum

    if all(job.minimum_devices == 1 for job in spec.jobs) or not _is_known(spec):
        return
    broken = breaks_minimum(spec.policy.name)
    for position, job in enumerate(spec.jobs):
        if job.minimum_devices > 1 and broken is not None:
            mend = "name one of these as policy.name, or take minimum_devices away"
            path = ("jobs", position, "minimum_devices")
            yield spec.origins.problem(path, job.minimum_devices, broken, mend=mend)


def _service_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """Jobs that are promised a service level, where the policy holds none."""
    from fleet.spec.policies import breaks_service_level

    if all(job.service_level is None for job in spec.jobs) or not _is_known(spec):
        return
    broken = breaks_service_level(spec.policy.name)
    for position, job in enumerate(spec.jobs):
        if job.service_level is not None and broken is not None:
            mend = "name this one as policy.name, or take service_level away"
            path = ("jobs", position, "service_level")
            yield spec.origins.problem(path, job.service_level.model_dump(), broken, mend=mend)


def _file_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    rates = spec.rehearse.rates if spec.rehearse else None
    files: list[tuple[KeyPath, object]] = [(("profile", "file"), spec.profile.file), (("rehearse", "rates"), rates)]
    for path, file in files:
        if isinstance(file, str) and not profile_files(spec.file(file)):
            rule = f"there is no such file in {spec.folder} or the current folder"
            folders = {(folder / file).parent for folder in (spec.folder, pathlib.Path())}
            beside = [found.name for folder in folders for found in folder.glob("*") if found.is_file()]
            mend = "correct the path, or make the file with `fleet profile SPEC --out FILE`"
            yield spec.origins.problem(path, file, rule, nearest(pathlib.Path(file).name, beside), mend)


def _rate_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    names = [job.name for job in spec.jobs]
    rehearse = spec.rehearse
    listed = {"rates": rehearse.rates, "batches": rehearse.batches} if rehearse else {}
    told = [(key, name) for key, rates in listed.items() if isinstance(rates, Mapping) for name in rates]
    for key, name in told:
        if name not in names:
            rule, near = f"there is no job {name!r}", nearest(name, names)
            yield spec.origins.problem(("rehearse", key, name), ABSENT, rule, near, "name a job of the spec")


def _data_problems(spec: EnsembleSpec, lengths: Lengths) -> Iterator[Problem]:
    """The problems of the data sections; no file of samples is opened."""
    for name, data in spec.data.items():
        base: KeyPath = ("data", name)
        for key, source in (("train", data.train), ("held_out", data.held_out)):
            if source is not None:
                yield from _source_problems(base + (key,), source, spec.origins)
        for key, steps in (("transforms", data.transforms), ("held_out_transforms", data.held_out_transforms)):
            for number, step in enumerate(steps):
                yield from _transform_problems(base + (key, number), step, spec.origins)
        yield from _collate_problems(base, data, spec.origins)
        weights = data.order.weights
        if weights is not None and weights != "balanced":
            try:
                resolve(weights)
            except ReferenceProblem as error:
                near = error.suggestion or nearest(weights, ["balanced"])
                yield spec.origins.problem(base + ("order", "weights"), weights, error.rule, near, error.mend)
        for key, length in zip(("train", "held_out"), lengths.get(name, ())):
            if length == 0:
                rule = "the data set has no samples"
                yield spec.origins.problem(base + (key,), ABSENT, rule, mend="give one that has")


def _source_problems(base: KeyPath, source: Source, origins: Origins) -> Iterator[Problem]:
    from preprocess.sources.source import built_in_sources  # here, so that reading a spec does not load the data path

    built_in = built_in_sources()
    if ":" not in source.source and source.source not in built_in:
        rule = f"{source.source!r} is not a source; built in are {', '.join(sorted(built_in))}"
        mend = "write one of these, or module:Name of a map-style data set"
        yield origins.problem(base + ("source",), source.source, rule, nearest(source.source, built_in), mend)
        return
    mend = "name a class or function that gives the data set"
    yield from _call_problems(base, "source", source.source, source.arguments, built_in, mend, origins)


def _transform_problems(base: KeyPath, step: Transform, origins: Origins) -> Iterator[Problem]:
    from preprocess.samples.errors import TransformError
    from preprocess.transforms.transform import build_transforms, built_in_transforms

    try:
        build_transforms([step.step])
    except TransformError as error:
        suggestion = nearest(step.name, built_in_transforms()) if error.value == step.name else None
        yield origins.problem(base, step.step, error.rule, suggestion, error.mend)


def _collate_problems(base: KeyPath, data: Data, origins: Origins) -> Iterator[Problem]:
    """Yield what does not go with samples of any shape, and what is wrong with the function that joins them."""
    named = data.collate
    if named is None:
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
    from fleet.spec.inputs import built_in_collates  # loads torch, which reading a spec does not need

    if ":" not in named.name and named.name not in built_in_collates():
        rule = f"{named.name!r} joins no samples; built in is pad"
        near, mend = (
            nearest(named.name, built_in_collates()),
            "write pad, or module:Name of a function of a list of samples",
        )
        yield origins.problem(base + ("collate", "name"), named.name, rule, near, mend)
        return
    mend = "name a function of a list of samples, or a class"
    yield from _call_problems(
        base + ("collate",), "name", named.name, named.arguments, built_in_collates(), mend, origins, by_position=1
    )


def _call_problems(
    base: KeyPath,
    key: str,
    name: str,
    arguments: Mapping[str, Any],
    built_in: Mapping[str, Any],
    mend: str,
    origins: Origins,
    by_position: int = 0,
) -> Iterator[Problem]:
    """Yield what is wrong with a name at a key below `base`, and with the arguments beside it.

    Args:
        mend: what to do where the name leads to nothing that can be called.
        by_position: arguments that a function without `arguments` gets beside; a class gets none of them.
    """
    try:
        found = built_in[name] if name in built_in else resolve(name)
    except ReferenceProblem as error:
        yield origins.problem(base + (key,), name, error.rule, error.suggestion, error.mend)
        return
    if not callable(found):
        yield origins.problem(base + (key,), name, f"a {type(found).__name__} cannot be called", mend=mend)
        return
    for misfit in misfits(found, name, arguments, 0 if isinstance(found, type) or arguments else by_position):
        at, value = misfit.place(arguments)
        yield origins.problem(base + at, value, misfit.rule, misfit.suggestion, misfit.mend)


def _object_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """Yield what the jobs name, each kind of job looked at once."""
    from fleet.spec.job_checks import Inspection

    seen: set[str] = set()
    for position, job in enumerate(spec.jobs):
        kind = job.model_dump(mode="json", include={"model", "task", "optimizer", "schedule", "loss", "metrics"})
        key = json.dumps([kind, job.data is None], sort_keys=True)
        if key in seen:
            continue
        seen.add(key)
        inspection = Inspection()
        inspection.job(job)
        for fault in inspection.faults:
            misfit = fault.misfit
            path = ("jobs", position, *fault.path)
            better = _search_mend(spec, job, fault.path)
            mend = f"{misfit.mend}; or {better}" if better else misfit.mend
            yield spec.origins.problem(path, fault.value, misfit.rule, misfit.suggestion, mend)


def _search_mend(spec: EnsembleSpec, job: Job, path: KeyPath) -> str:
    """What a search could say instead, where the values that it varies at a path of a job do not fit; "": nothing."""
    dotted, over = ".".join(map(str, path)), spec.search.over if spec.search is not None else {}
    for varied, what in over.items():
        owner, inside, argument = varied.partition(".arguments.")
        names = over[f"{owner}.name"].choice if f"{owner}.name" in over else None
        own = getattr(getattr(job, owner, None), "name", None)
        if inside and varied == dotted and names is not None and own in names:
            others = [name for name in names if name != own]
            return f"say beside its distribution where it is set: when: {{{owner}.name: {', '.join(map(str, others))}}}"
        ends = what.uniform or what.log_uniform
        whole = ends is not None and what.step is None and all(end == int(end) for end in ends) and ends[0] >= 1
        if ends is not None and whole and (varied == dotted or varied.startswith(f"{dotted}.")):
            kind = "integer" if what.uniform else "log_integer"
            return f"where {argument or varied} is a whole number, {{{kind}: [{int(ends[0])}, {int(ends[1])}]}}"
    return ""


def _link_problems(spec: EnsembleSpec, position: int, job: Job, lengths: Lengths) -> Iterator[Problem]:
    """Yield what a job says of data, and of its own metrics."""
    base: KeyPath = ("jobs", position)
    if job.data is not None and job.data not in spec.data:
        known = sorted(spec.data)
        rule = f"there is no data set {job.data!r}; " + (f"there are {listed(known)}" if known else "the spec has none")
        mend = "name one of them" if known else f"add data: {{{job.data}: ...}} to the spec"
        yield spec.origins.problem(base + ("data",), job.data, rule, nearest(job.data, known), mend)
    length = _own_length(job, _length_of(job, lengths))
    least = job.virtual_workers if job.largest_batch else job.global_batch
    if length and least > length:
        yield _batch_problem(spec, base, job, length)
    if not (job.auto_workers or job.largest_batch or job.batch_range):  # the batch is yet to be chosen
        for inner, value, rule, mend in too_short(job, Length.of(job, length)):
            yield spec.origins.problem(base + inner, value, rule, mend=mend)
    if job.compile is not None and spec.determinism.pinned_to is not None:
        rule = "torch.compile makes kernels for the device at hand, and D2 wants those that all kinds of devices have"
        yield spec.origins.problem(
            base + ("compile",), job.compile, rule, mend="take `compile` away, or set determinism to D1"
        )
    unmeasured = [] if job.task is not None else list(_metric_problems(spec, base, job))
    yield from unmeasured
    if not unmeasured:
        yield from direction_problems(spec, base, job)


def _own_length(job: Job, length: int | None) -> int | None:
    """Training samples of the job's own part of so many; None: not known, or it has no such part."""
    from fleet.spec.subsets import part_of

    part = part_of(job)
    if part is None or length is None:
        return length
    return max(0, min(part.train_count(length), length)) or None


def _batch_problem(spec: EnsembleSpec, base: KeyPath, job: Job, length: int) -> Problem:
    workers, batch, most = job.virtual_workers, job.batch_size, length // job.virtual_workers
    rule = f"{workers} virtual workers x {batch} = {job.global_batch} samples a step, but there are {length} samples"
    if not most:
        mend = f"set virtual_workers to at most {length}"
        return spec.origins.problem(base + ("virtual_workers",), workers, rule, str(length), mend)
    return spec.origins.problem(base + ("batch_size",), batch, rule, str(most), f"set batch_size to at most {most}")


def _measured(spec: EnsembleSpec, job: Job) -> tuple[list[str], bool]:
    """The metrics that a job with a model measures, and whether it has samples to validate on."""
    data = spec.data.get(job.data or "")
    validates = data is None or data.held_out is not None or job.folds is not None
    return ["loss", *(["test_loss", *map(metric_name, job.metrics)] if validates else [])], validates


_NOT_VALIDATED = " (nothing is held out to measure others on)"


def _metric_problems(spec: EnsembleSpec, base: KeyPath, job: Job) -> Iterator[Problem]:
    known, validates = _measured(spec, job)
    wanted: list[tuple[KeyPath, str]] = [(("stop", "target", name), name) for name in job.stop.target]
    if job.stop.monitor is not None or job.stop.patience is not None:
        wanted.append((("stop", "monitor"), job.stop.monitored))
    best = spec.checkpoints.best
    if best is not None and best not in known:
        mend = f"add {best} to the job's metrics, or name a metric that all jobs measure"
        rule = f"{best!r} is not measured by job {job.name}, which measures {', '.join(known)}"
        yield spec.origins.problem(("checkpoints", "best"), best, rule, nearest(best, known), mend)
    for path, name in wanted:
        if name not in known:
            mend = (
                f"add {name} to metrics, or name one of them" if validates else "add held_out to the data, or use loss"
            )
            rule = (
                f"{name!r} is not measured; this job measures {', '.join(known)}{'' if validates else _NOT_VALIDATED}"
            )
            value = job.stop.target[name] if path[1] == "target" else name
            yield spec.origins.problem(base + path, value, rule, nearest(name, known), mend)


def _search_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """Yield what is wrong with a search beside its trials."""
    search = spec.search
    if search is None:
        return
    job = first_trial(search)
    if job is not None:
        known, validates = _measured(spec, job)
        if job.task is not None or all(metric in known for metric in search.metrics):
            yield from search_direction_problems(spec, search, job)
        for metric in search.metrics if job.task is None else ():  # a task measures what it likes
            if metric not in known:
                why = "" if validates else _NOT_VALIDATED
                rule = f"{metric!r} is not measured; trials measure {', '.join(known)}{why}"
                mend = f"add {metric} to the metrics of `search.job`, or name one of them"
                mend = mend if validates else "add held_out to the data, or use loss"
                yield spec.origins.problem(("search", "metric"), metric, rule, nearest(metric, known), mend)
    if isinstance(search.costs, str) and search.costs != OPERATIONS:
        path: KeyPath = ("search", "costs")
        try:
            found = resolve(search.costs)
        except ReferenceProblem as error:
            yield spec.origins.problem(path, search.costs, error.rule, error.suggestion, error.mend)
            return
        if not callable(found):
            rule = f"{search.costs} is of type {type(found).__name__} and cannot be called"
            yield spec.origins.problem(path, search.costs, rule, mend="name a class or function")


_PATHS = ("path", "root", "dir", "file", "folder")
"""What the names of a person's own arguments hold that are paths."""


def check_places(spec: EnsembleSpec) -> None:
    """Check, from where the command was given, that no path of data leads to a file there instead of beside the spec.

    Raises:
        SpecError: with all such paths.
    """
    problems = list(_place_problems(spec))
    if problems:
        raise SpecError(in_order(problems))


def _place_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """The paths of data that are there in the current folder, and not in the spec's."""
    here = pathlib.Path.cwd()
    if spec.folder.absolute() == here:
        return
    for name, data in spec.data.items():
        for key, source in (("train", data.train), ("held_out", data.held_out)):
            base: KeyPath = ("data", name, key, "arguments")
            for path, text in _texts(source.arguments, base) if source is not None else ():
                if _is_path(source, path, text) and not (spec.folder / text).exists() and pathlib.Path(text).exists():
                    there = os.path.relpath(text, spec.folder.absolute())
                    rule = (
                        f"there is no such file in {spec.folder.absolute()}, where relative paths of the spec begin; "
                        f"{here}, where the command was given, has one"
                    )
                    mend = f"write {there}, or give the command --folder {here}"
                    yield spec.origins.problem(path, text, rule, there, mend)


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _texts(child, (*path, key))
    elif isinstance(value, (list, tuple)):
        for number, child in enumerate(value):
            yield from _texts(child, (*path, number))


def _is_path(source: Source | None, path: KeyPath, text: str) -> bool:
    """Whether an argument is a relative path: in a person's own data set, as far as its name or its form says so."""
    if source is None or not text or os.path.isabs(text) or "://" in text or "\0" in text:
        return False
    names = [key for key in path[4:] if isinstance(key, str)]
    told = any(word in name.lower() for name in names for word in _PATHS)
    return ":" not in source.source or told or os.sep in text or bool(pathlib.Path(text).suffix)


def with_found_files(spec: EnsembleSpec) -> EnsembleSpec:
    """The spec with the full paths of its files of rates, of which some are in the current folder alone."""
    if spec.folder.absolute() == pathlib.Path.cwd():
        return spec
    found: dict[str, Any] = {}
    for name, key in (("profile", "file"), ("rehearse", "rates")):
        section = getattr(spec, name)
        told = None if section is None else getattr(section, key)
        if isinstance(told, str):
            found[name] = section.model_copy(update={key: str(spec.file(told).absolute())})
    return spec.model_copy(update=found)
