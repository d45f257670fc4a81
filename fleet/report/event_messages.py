"""The line that a person wants to read about an event, if any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fleet.journal import events
from fleet.journal.state import JobState, RunState
from fleet.report import wording


def message(event: events.Event, state: RunState) -> str | None:
    """One line for `event`, which `state` has taken already; None for events that are only written down."""
    writer = _WRITERS.get(type(event))
    text = writer(event, state) if writer else None
    return None if text is None else wording.printable(text)


def promise_text(event: events.Late | events.Admitted | events.Done, state: RunState) -> str:
    """What the event, the last one that `state` has taken, means for a promised deadline; "": nothing new."""
    if isinstance(event, events.Late):
        return wording.lateness(event.deadline, event.end)
    return {"kept": "its deadline was kept after all", "tenable": "its deadline can be kept after all"}.get(
        state.promise, ""
    )


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """accuracy 98.10 %, loss 0.061: the metrics that people look at come first."""
    order = sorted(metrics, key=lambda name: (name != "accuracy", "loss" not in name))
    return ", ".join(f"{_short(name)} {wording.metric(name, metrics[name])}" for name in order)


def _short(name: str) -> str:
    return wording.metric_title(name).lower() if name in wording.METRIC_TITLES else name


def epochs_text(job: JobState) -> str:
    """3/8, or 3 where nobody knows how many there will be."""
    return f"{job.epochs}/{job.told.max_epochs}" if job.told.max_epochs else str(job.epochs)


def _session(event: events.Session, state: RunState) -> str:
    policy = f"policy {event.policy}"
    return f"goes on, session {event.session}, {policy}" if event.session else policy


def _cluster(event: events.Cluster, state: RunState) -> str:
    members, nodes = event.members_per_device, wording.plural(len(event.devices_per_node), "node")
    shared = f", up to {members} on one accelerator" if members > 1 else ""
    return f"{wording.plural(event.size, 'device')} on {nodes}{shared}"


def _preprocessors(event: events.Preprocessors, state: RunState) -> str:
    chosen = wording.plural(event.chosen or 0, "preprocessor")
    known = f"a demand of {wording.rate(event.demand)} samples/s" if event.demand else "unknown demand"
    return f"{chosen} for {known}"


def _preprocessing(event: events.Preprocessing, state: RunState) -> str:
    lent = len(event.trainers)
    who = f"{event.working} of {wording.plural(event.available, 'preprocessor')}"
    who += f" and {wording.plural(lent, 'trainer')} without a network" if lent else ""
    make = "makes" if event.working + lent == 1 else "make"
    return f"{who} {make} samples, for a demand of {wording.rate(event.demand)} samples/s"


def _planned(event: events.Planned, state: RunState) -> str:
    shares = "; ".join(f"{job} on {wording.devices(devices)}" for job, devices in event.allocation.items())
    others = "; the others go on" if event.others_go_on else ""
    return f"flotilla {event.round}: {shares or 'nothing'}{others}"


def _epoch(event: events.Epoch, state: RunState) -> str:
    rate = f"{wording.rate(event.rate)} samples/s on {wording.plural(len(event.devices), 'device')}"
    return f"{event.job} epoch {epochs_text(state.job(event.job))}: {metrics_text(event.metrics)}, {rate}"


def _stopped(event: events.Stopped, state: RunState) -> str | None:
    return None if event.why == "asked" else f"{event.job} stopped: {wording.WHY.get(event.why, event.why)}"


def _halted(event: events.Halted, state: RunState) -> str:
    return f"{event.job} stopped by name; fleet stop --undo takes it up again"


def _taken_up(event: events.TakenUp, state: RunState) -> str:
    return f"{event.job} is taken up again"


def _batch(event: events.Batch, state: RunState) -> str:
    since = f" from epoch {event.epoch + 1} on" if event.epoch else ""
    more = f", the largest: {wording.BATCH_LIMITS.get(event.limit, event.limit)}" if event.limit else ""
    return f"{event.job} has batches of {event.batch} samples{since}{more}"


def _done(event: events.Done, state: RunState) -> str:
    promise = promise_text(event, state)
    told = f"; {promise}" if promise else ""
    metrics = metrics_text(state.job(event.job).metrics)
    return f"{event.job} done, {wording.WHY.get(event.why, event.why)}: {metrics}{told}"


def _failed(event: events.Failed, state: RunState) -> str:
    return f"{event.job} FAILED: {event.error}"


def _stopping(event: events.Stopping, state: RunState) -> str:
    jobs = ", ".join(event.jobs)
    return f"asked to stop: {jobs} finish their step and are saved" if jobs else "asked to stop: nothing trains"


def _warning(event: events.Warned, state: RunState) -> str:
    return f"warning: {f'{event.job}: ' if event.job else ''}{event.text}"


def _late(event: events.Late, state: RunState) -> str:
    return f"warning: {event.job}: {promise_text(event, state)}"


def _admitted(event: events.Admitted, state: RunState) -> str | None:
    promise = promise_text(event, state)
    return f"{event.job}: {promise}" if promise else None


def _service_window(event: events.ServiceWindow, state: RunState) -> str | None:
    told = wording.broken_service(event.promised, event.had, event.begin, event.end) if event.broken else ""
    return f"warning: {event.job}: {told}" if told else None


def _lost(event: events.RanksLost, state: RunState) -> str:
    ranks, hosts = ", ".join(map(str, event.ranks)), ", ".join(event.hosts)
    return f"rank {ranks} on {hosts} was lost, and {wording.devices(event.devices)} with it; the others go on"


def _skipped(event: events.Skipped, state: RunState) -> str:
    sample = f"{event.data}: {event.kind.replace('_', '-')} sample {event.sample}"
    return f"{sample} skipped, sample {event.substitute} taken in its place: {event.reason}"


def _ended(event: events.Ended, state: RunState) -> str:
    wall = wording.duration(event.wall_seconds or state.seconds)
    return f"{event.status} after {wall}: {state.count('done')} done, {state.count('failed')} failed"


_WRITERS: Mapping[type[events.Event], Callable[[Any, RunState], str | None]] = {
    events.Session: _session,
    events.Cluster: _cluster,
    events.Preprocessors: _preprocessors,
    events.Preprocessing: _preprocessing,
    events.Planned: _planned,
    events.Batch: _batch,
    events.Epoch: _epoch,
    events.Stopped: _stopped,
    events.Halted: _halted,
    events.TakenUp: _taken_up,
    events.Stopping: _stopping,
    events.Done: _done,
    events.Failed: _failed,
    events.Warned: _warning,
    events.Late: _late,
    events.Admitted: _admitted,
    events.ServiceWindow: _service_window,
    events.RanksLost: _lost,
    events.Skipped: _skipped,
    events.Ended: _ended,
}
