"""Whether a spec that is well formed can also be trained: what takes imports, other sections or the data to know."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping

from fleet.spec.directions import best_problems, direction_problems
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import Job
from fleet.spec.metrics import metric_name
from fleet.spec.problem import ABSENT, Path, Problem, in_order, listed, nearest
from fleet.spec.profile_files import profile_files
from fleet.spec.references import ReferenceProblem
from fleet.spec.run_length import Length, misfits, too_short
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
    from fleet.spec.own_part import part_problems
    from fleet.spec.search_checks import search_problems, with_likely_trials
    from trainers.repeatable.no_exit import no_exit

    problems = [*_resource_problems(spec), *_file_problems(spec), *_rate_problems(spec)]
    with at_home(spec.folder), kept_random_state(), no_exit():
        problems += [
            *_policy_problems(spec),
            *_minimum_problems(spec),
            *_service_problems(spec),
            *_data_problems(spec, lengths or {}),
            *search_problems(spec),
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
    from fleet.spec.search_checks import with_likely_trials

    own, told = {job.name for job in spec.jobs}, dict[str, str]()
    for job in with_likely_trials(spec).jobs:
        for text in misfits(job, Length.of(job, _own_length(job, _length_of(job, lengths)))):
            told.setdefault(text, f"job {job.name}" if job.name in own else f"trials such as {job.name}")
    return tuple(f"{who}: {text}" for text, who in told.items())


def _length_of(job: Job, lengths: Lengths) -> int | None:
    """Training samples of the job's data set, where the caller knows them."""
    return lengths[job.data][0] if job.data is not None and job.data in lengths else None


def _resource_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    from fleet.spec.search_checks import most_workers

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
    from fleet.spec.policies import chosen_policy  # here, so that reading a spec does not load the schedulers

    try:
        chosen_policy(spec.policy.name, **spec.policy.parameters)
    except ReferenceProblem as error:
        yield spec.origins.problem(("policy", "name"), spec.policy.name, error.rule, error.suggestion, error.mend)
    except ValueError as error:
        mend = "correct policy.name or policy.parameters"
        yield spec.origins.problem(("policy",), spec.policy.model_dump(mode="json"), str(error), mend=mend)


def _is_known(spec: EnsembleSpec) -> bool:
    """Whether there is such a policy; otherwise that is the problem to tell."""
    from fleet.scheduling.policies import policy_class

    try:
        return bool(policy_class(spec.policy.name))
    except ValueError:
        return False


def _minimum_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """Jobs with `minimum_devices`, where the policy does not keep to that."""
    from fleet.scheduling.policies import breaks_minimum

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
    from fleet.scheduling.policies import breaks_service_level

    if all(job.service_level is None for job in spec.jobs) or not _is_known(spec):
        return
    broken = breaks_service_level(spec.policy.name)
    for position, job in enumerate(spec.jobs):
        if job.service_level is not None and broken is not None:
            mend = "name this one as policy.name, or take service_level away"
            yield spec.origins.problem(
                ("jobs", position, "service_level"), job.service_level.model_dump(), broken, mend=mend
            )


def _file_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    rates = spec.rehearse.rates if spec.rehearse else None
    files: list[tuple[Path, object]] = [(("profile", "file"), spec.profile.file), (("rehearse", "rates"), rates)]
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
            yield spec.origins.problem(
                ("rehearse", key, name),
                ABSENT,
                f"there is no job {name!r}",
                nearest(name, names),
                "name a job of the spec",
            )


def _data_problems(spec: EnsembleSpec, lengths: Lengths) -> Iterator[Problem]:
    from fleet.spec.data_checks import data_problems

    for name, data in spec.data.items():
        yield from data_problems(name, data, spec.origins)
        for key, length in zip(("train", "held_out"), lengths.get(name, ())):
            if length == 0:
                yield spec.origins.problem(
                    ("data", name, key), ABSENT, "the data set has no samples", mend="give one that has"
                )


def _object_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """What the jobs name, each kind of job looked at once."""
    from fleet.spec.job_checks import Inspection
    from fleet.spec.search_checks import search_mend

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
            better = search_mend(spec, job, fault.path)
            mend = f"{misfit.mend}; or {better}" if better else misfit.mend
            yield spec.origins.problem(path, fault.value, misfit.rule, misfit.suggestion, mend)


def _link_problems(spec: EnsembleSpec, position: int, job: Job, lengths: Lengths) -> Iterator[Problem]:
    """What a job says of data, and of its own metrics."""
    base: Path = ("jobs", position)
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
    from fleet.spec.own_part import part_of

    part = part_of(job)
    if part is None or length is None:
        return length
    return max(0, min(part.train_count(length), length)) or None


def _batch_problem(spec: EnsembleSpec, base: Path, job: Job, length: int) -> Problem:
    workers, batch, most = job.virtual_workers, job.batch_size, length // job.virtual_workers
    rule = f"{workers} virtual workers x {batch} = {job.global_batch} samples a step, but there are {length} samples"
    if not most:
        mend = f"set virtual_workers to at most {length}"
        return spec.origins.problem(base + ("virtual_workers",), workers, rule, str(length), mend)
    return spec.origins.problem(base + ("batch_size",), batch, rule, str(most), f"set batch_size to at most {most}")


def _metric_problems(spec: EnsembleSpec, base: Path, job: Job) -> Iterator[Problem]:
    data = spec.data.get(job.data or "")
    held_out = data is None or data.held_out is not None or job.folds is not None
    own = [metric_name(entry) for entry in job.metrics]
    known = ["loss", *(["test_loss", *own] if held_out else [])]
    why = "" if held_out else " (nothing is held out to measure others on)"
    wanted: list[tuple[Path, str]] = [(("stop", "target", name), name) for name in job.stop.target]
    if job.stop.monitor is not None or job.stop.patience is not None:
        wanted.append((("stop", "monitor"), job.stop.monitored))
    asked = spec.checkpoints.best
    if asked is not None and asked not in known:
        yield _unmeasured_best(spec, job, asked, known)
    for path, name in wanted:
        if name not in known:
            mend = (
                f"add {name} to metrics, or name one of them" if held_out else "add held_out to the data, or use loss"
            )
            rule = f"{name!r} is not measured; this job measures {', '.join(known)}{why}"
            value = job.stop.target[name] if path[1] == "target" else name
            yield spec.origins.problem(base + path, value, rule, nearest(name, known), mend)


def _unmeasured_best(spec: EnsembleSpec, job: Job, name: str, known: list[str]) -> Problem:
    mend = f"add {name} to the job's metrics, or name a metric that all jobs measure"
    rule = f"{name!r} is not measured by job {job.name}, which measures {', '.join(known)}"
    return spec.origins.problem(("checkpoints", "best"), name, rule, nearest(name, known), mend)
