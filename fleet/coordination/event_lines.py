"""What the journal says of what an executor told."""

from __future__ import annotations

from typing import Any

from fleet.coordination.executor import GroupEnded
from fleet.coordination.job_record import JobRecord
from fleet.coordination.protocol import EpochEnded
from fleet.journal import events


def epoch_of(word: EpochEnded, round_: int, devices: tuple[int, ...]) -> events.Epoch:
    """A job finished an epoch on these devices."""
    return events.Epoch(
        round=round_,
        job=word.job,
        epoch=word.epoch,
        step=word.step,
        devices=devices,
        seconds=word.seconds,
        rate=word.rate,
        metrics=word.metrics,
        learning_rate=word.learning_rate,
        deaf=word.deaf,
        **_times(devices, word),
    )


def dropped_by(policy: str, why: str = "") -> str:
    """Why a job has failed that its policy will never run."""
    return f"policy {policy} dropped it: {why}"


def end_of(word: GroupEnded, round_: int | None, job: JobRecord) -> events.Event:
    """How a group's work ended."""
    common: dict[str, Any] = {"round": round_, "job": word.job, "devices": word.devices, "epoch": word.epoch}
    if word.why == "done":
        return events.Done(**common, why=word.reason, metrics=job.metrics, checkpoint=job.checkpoint)
    if word.why == "failed":
        return events.Failed(**common, error=word.error, traceback=word.traceback, cost_ranks=word.cost_ranks)
    times = _times(word.devices, word)
    if word.why == "stopped" and word.reason == "pause":
        return events.Paused(**common, step=word.step, why=word.reason, **times)
    return events.Stopped(**common, step=word.step, why=word.reason if word.why == "stopped" else "lost", **times)


def _times(devices: tuple[int, ...], word: EpochEnded | GroupEnded) -> dict[str, Any]:
    """What each device did since the last report, seconds."""
    waited = {d: events.Waited(a, b) for d, a, b in zip(devices, word.waited_data, word.waited_peers)}
    return {"waited": waited, "computed": dict(zip(devices, word.computed))}
