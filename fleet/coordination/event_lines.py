"""What the journal says of what an executor told."""

from __future__ import annotations

from typing import Any

from fleet.coordination.executor import GroupEnded, Start
from fleet.coordination.job_record import JobRecord
from fleet.coordination.protocol import EpochEnded
from fleet.scheduling.easyscale.kind_curves import Kinds
from fleet.scheduling.model.plan import Plan

Keys = dict[str, Any]


def epoch_line_keys(event: EpochEnded, round_: int, devices: tuple[int, ...]) -> Keys:
    """The keys of the line "epoch": a job finished one on these devices."""
    return {
        "round": round_,
        "job": event.job,
        "epoch": event.epoch,
        "step": event.step,
        "devices": devices,
        "seconds": event.seconds,
        "rate": event.rate,
        "metrics": event.metrics,
        "learning_rate": event.learning_rate,
        "deaf": event.deaf,
        **_times(devices, event),
    }


def plan_keys(plan: Plan, seconds: float) -> Keys:
    """What the line "planned" says of the plan, which took so long."""
    known = {"seconds": seconds, "bound_seconds": plan.bound, "end_seconds": plan.end, "lent": plan.lent}
    return {name: value for name, value in known.items() if value is not None}


def unlike_keys(start: Start, kinds: Kinds) -> Keys:
    """What the line "started" says besides: which trainers help to make its samples, if any do, and where devices are
    of several kinds the job's, or its shares of them.
    """
    lent = {"prepared_by": start.prepared_by} if start.prepared_by else {}
    if start.shares:
        return {"shares": start.shares, **lent}
    return {"kind": kinds[0], **lent} if kinds[0] else lent


def dropped_by(policy: str, why: str = "") -> str:
    """Why a job has failed that its policy will never run."""
    return f"policy {policy} dropped it: {why}"


def end_line(event: GroupEnded, round_: int | None, job: JobRecord) -> tuple[str, Keys]:
    """Name and keys of the line that says how a group's work ended."""
    common: Keys = {"round": round_, "job": event.job, "devices": event.devices, "epoch": event.epoch}
    if event.why == "done":
        return "done", {**common, "why": event.reason, "metrics": job.metrics, "checkpoint": job.checkpoint}
    if event.why == "failed":
        return "failed", {**common, "error": event.error, "traceback": event.traceback, "cost_ranks": event.cost_ranks}
    times = _times(event.devices, event)
    if event.why == "stopped" and event.reason == "pause":
        return "paused", {
            "round": round_, "job": event.job, "devices": event.devices, "epoch": event.epoch, "step": event.step,
            "why": event.reason, **times,
        }  # fmt: skip
    why = event.reason if event.why == "stopped" else "lost"
    return "stopped", {**common, "step": event.step, "why": why, **times}


def _times(devices: tuple[int, ...], event: EpochEnded | GroupEnded) -> Keys:
    """What each device did since the last report, seconds."""
    waited = {d: {"data": a, "peers": b} for d, a, b in zip(devices, event.waited_data, event.waited_peers)}
    return {"waited": waited, "computed": dict(zip(devices, event.computed))}
