"""The line that a person wants to read about an event, if any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.report import wording
from fleet.report.progress import NetworkProgress, RunProgress
from fleet.run_directory.journal import JournalLine


def message(event: JournalLine, progress: RunProgress) -> str | None:
    """One line for `event`, which `progress` has taken already; None for events that are only written down."""
    writer = _WRITERS.get(str(event.get("event")))
    text = writer(event, progress) if writer else None
    return None if text is None else wording.printable(text)


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """accuracy 98.10 %, loss 0.061: the metrics that people look at come first."""
    order = sorted(metrics, key=lambda name: (name != "accuracy", "loss" not in name))
    return ", ".join(f"{_short(name)} {wording.metric(name, metrics[name])}" for name in order)


def _short(name: str) -> str:
    return wording.metric_title(name).lower() if name in wording.METRIC_TITLES else name


def epochs_text(network: NetworkProgress) -> str:
    """3/8, or 3 where nobody knows how many there will be."""
    return f"{network.epochs}/{network.max_epochs}" if network.max_epochs else str(network.epochs)


def _session(event: JournalLine, progress: RunProgress) -> str:
    number, policy = int(event.get("session") or 0), event.get("policy", "")
    return f"policy {policy}" if number == 0 else f"goes on, session {number}, policy {policy}"


def _cluster(event: JournalLine, progress: RunProgress) -> str:
    nodes = len(event.get("devices_per_node", ()))
    members = int(event.get("members_per_device") or 1)
    shared = f", up to {members} on one accelerator" if members > 1 else ""
    return f"{wording.plural(progress.devices, 'device')} on {wording.plural(nodes, 'node')}{shared}"


def _preprocessors(event: JournalLine, progress: RunProgress) -> str:
    demand, chosen = event.get("demand"), wording.plural(int(event.get("chosen") or 0), "preprocessor")
    return f"{chosen} for a demand of {wording.rate(demand)} samples/s" if demand else f"{chosen} for unknown demand"


def _preprocessing(event: JournalLine, progress: RunProgress) -> str:
    demand, available = wording.rate(event.get("demand")), int(event.get("available") or 0)
    working, lent = int(event.get("working") or 0), len(event.get("trainers") or ())
    who = f"{working} of {wording.plural(available, 'preprocessor')}"
    who += f" and {wording.plural(lent, 'trainer')} without a network" if lent else ""
    return f"{who} {'makes' if working + lent == 1 else 'make'} samples, for a demand of {demand} samples/s"


def _planned(event: JournalLine, progress: RunProgress) -> str:
    allocation = event.get("allocation") or {}
    shares = "; ".join(f"{job} on {wording.devices(map(int, devices))}" for job, devices in allocation.items())
    return f"flotilla {event.get('round')}: {shares or 'nothing'}"


def _epoch(event: JournalLine, progress: RunProgress) -> str:
    network = progress.network(event)
    devices = wording.plural(len(event.get("devices", ())), "device")
    rate = f"{wording.rate(event.get('rate'))} samples/s on {devices}"
    return f"{network.name} epoch {epochs_text(network)}: {metrics_text(event.get('metrics') or {})}, {rate}"


def _stopped(event: JournalLine, progress: RunProgress) -> str | None:
    why = str(event.get("why", ""))
    return None if why == "asked" else f"{event.get('job')} stopped: {wording.WHY.get(why, why)}"


def _halted(event: JournalLine, progress: RunProgress) -> str:
    return f"{event.get('job')} stopped by name; fleet stop --undo takes it up again"


def _taken_up(event: JournalLine, progress: RunProgress) -> str:
    return f"{event.get('job')} is taken up again"


def _batch(event: JournalLine, progress: RunProgress) -> str:
    since = f" from epoch {int(event['epoch']) + 1} on" if event.get("epoch") else ""
    limit = str(event.get("limit") or "")
    more = f", the largest: {wording.BATCH_LIMITS.get(limit, limit)}" if limit else ""
    return f"{event.get('job')} has batches of {event.get('batch')} samples{since}{more}"


def _done(event: JournalLine, progress: RunProgress) -> str:
    why = str(event.get("why", ""))
    network = progress.network(event)
    promise = f"; {progress.promise_told}" if progress.promise_told else ""
    return f"{network.name} done, {wording.WHY.get(why, why)}: {metrics_text(network.metrics)}{promise}"


def _failed(event: JournalLine, progress: RunProgress) -> str:
    return f"{event.get('job')} FAILED: {event.get('error')}"


def _stopping(event: JournalLine, progress: RunProgress) -> str:
    jobs = ", ".join(map(str, event.get("jobs") or ()))
    return f"asked to stop: {jobs} finish their step and are saved" if jobs else "asked to stop: nothing trains"


def _warning(event: JournalLine, progress: RunProgress) -> str:
    job = event.get("job")
    return f"warning: {f'{job}: ' if job else ''}{event.get('text', '')}"


def _late(event: JournalLine, progress: RunProgress) -> str:
    return f"warning: {event.get('job')}: {progress.promise_told}"


def _admitted(event: JournalLine, progress: RunProgress) -> str | None:
    return f"{event.get('job')}: {progress.promise_told}" if progress.promise_told else None


def _service_window(event: JournalLine, progress: RunProgress) -> str | None:
    if not event.get("broken"):
        return None
    told = [float(event[key]) for key in ("promised", "had", "begin", "end")]
    return f"warning: {event.get('job')}: {wording.broken_service(*told)}"


def _lost(event: JournalLine, progress: RunProgress) -> str:
    ranks, hosts = ", ".join(map(str, event.get("ranks") or ())), ", ".join(map(str, event.get("hosts") or ()))
    devices = wording.devices(map(int, event.get("devices") or ()))
    return f"rank {ranks} on {hosts} was lost, and {devices} with it; the others go on"


def _skipped(event: JournalLine, progress: RunProgress) -> str:
    sample = f"{event.get('data')}: {str(event.get('kind')).replace('_', '-')} sample {event.get('sample')}"
    return f"{sample} skipped, sample {event.get('substitute')} taken in its place: {event.get('reason')}"


def _ended(event: JournalLine, progress: RunProgress) -> str:
    wall = wording.duration(float(event.get("wall_seconds") or progress.seconds))
    return (
        f"{event.get('status', 'done')} after {wall}: {progress.count('done')} done, {progress.count('failed')} failed"
    )


_WRITERS = {
    "session": _session,
    "cluster": _cluster,
    "preprocessors": _preprocessors,
    "preprocessing": _preprocessing,
    "planned": _planned,
    "batch": _batch,
    "epoch": _epoch,
    "stopped": _stopped,
    "halted": _halted,
    "taken_up": _taken_up,
    "stopping": _stopping,
    "done": _done,
    "failed": _failed,
    "warning": _warning,
    "late": _late,
    "admitted": _admitted,
    "service_window": _service_window,
    "lost": _lost,
    "skipped": _skipped,
    "ended": _ended,
}
