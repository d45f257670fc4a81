"""Last batches of an epoch that a network cannot take, found before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fleet.profiling.measure import made_up_batch
from fleet.spec import Job, Problem
from fleet.spec.job import data_key
from fleet.spec.problem import ABSENT, KeyPath
from fleet.spec.trials import corner_jobs
from fleet.workers.runtime import Runtime
from preprocess import SampleLayout
from trainers.repeatable.process_settings import model_without_memory, no_exit, spare_compiler
from trainers.task.parts import is_parted
from trainers.task.task import loss_of
from trainers.task.task_options import StepOptions

_BATCH_NORM = "Expected more than 1"  # as torch's layers begin their refusal


def last_batch_problems(runtime: Runtime) -> Iterator[Problem]:
    """What is wrong with the last batches of jobs, and of trials at the ends of a search's values."""
    origins = runtime.spec.origins
    for job in corner_jobs(runtime.spec):
        refused = _refused(runtime.with_job(job), job) if data_key(job) in runtime.facts else ""
        if refused:
            yield origins.problem(("search", "job"), ABSENT, refused, mend=_mend("the search's job"))
            return
    for position, job in enumerate(runtime.spec.jobs):
        if refused := _refused(runtime, job):
            path: KeyPath = ("jobs", position, "batch_size")
            yield origins.problem(path, job.batch_size, refused, mend=_mend("the job"))


def _mend(where: str) -> str:
    return f"add drop_last: true to {where}, which leaves that batch out; or choose another batch_size"


def _refused(runtime: Runtime, job: Job) -> str:
    """Why the job's network cannot take its last batch; "" if it can, or nothing tells."""
    chosen = job.batches is not None or job.auto_workers or job.largest_batch is not None
    if chosen or job.virtual_workers > runtime.samples_of(job.name):
        return ""
    try:
        last = runtime.plan(job.name).last_batch
    except ValueError as error:  # nothing is left of an epoch
        return str(error)
    if last == job.batch_size:
        return ""
    said = _said(runtime.task(job.name), runtime.data_of(job.name).layout, last)
    if not said:
        return ""
    samples, workers = runtime.samples_of(job.name), job.virtual_workers
    each = f" for each of {workers} virtual workers" if workers > 1 else ""
    return (
        f"{samples} samples in batches of {job.batch_size} leave a last batch of {last}{each}, which the network of "
        f"{job.name} refuses: {said}"
    )


def _said(task: object, layout: SampleLayout, last: int) -> str:
    """What a layer says that needs several samples, where a part of the last batch has one; "": nothing."""
    made: object = task
    if hasattr(made, "collate") or is_parted(made):  # type: ignore[arg-type]
        return ""
    spare_compiler()
    meta = torch.device("meta")
    try:
        with no_exit():
            parts = StepOptions.of(made).parts(made_up_batch(layout, last, meta))  # type: ignore[arg-type]
            if all(len(part[1]) > 1 for part, _ in parts):
                return ""
            model = model_without_memory(made.model)  # type: ignore[attr-defined]
            for part, _ in parts:
                loss_of(made, model, part)  # type: ignore[arg-type]
    except ValueError as error:
        return str(error) if str(error).startswith(_BATCH_NORM) else ""
    except (Exception, SystemExit):  # what fails without data is told elsewhere
        return ""
    return ""
