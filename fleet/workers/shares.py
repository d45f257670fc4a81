"""Which samples each member of a group reads."""

from __future__ import annotations

from fleet.workers.feed import Share
from fleet.workers.runtime import Runtime
from trainers import Group, Trainer
from trainers.task.task import batch_size_of, evaluation_batch_of


def member_share(runtime: Runtime, name: str, group: Group, trainer: Trainer) -> Share:
    """This member's share of the job that its group trains."""
    job = runtime.job(name)
    blocks = group.blocks(job.virtual_workers)
    owners = tuple(member for member, block in enumerate(blocks) for _ in block)
    evaluators = owners if group.shares else tuple(range(group.size))
    step = job.virtual_workers * batch_size_of(trainer.task)  # by its own batch, whatever it is now
    return Share(
        trainer.plan(runtime.samples_of(name)), blocks[group.index], group.index, evaluators,
        evaluation_batch_of(trainer.task, step), runtime.own_order(name), runtime.own_held_out(name),
    )  # fmt: skip
