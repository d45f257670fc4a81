"""Where each device's seconds went, and how many it waited (FLEET, MLSys'20, Figure 6)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from fleet.journal.events import Epoch
from fleet.report.history import DeviceSpan, RunHistory


@dataclass(frozen=True)
class DeviceTime:
    """The seconds of one device: computing + waiting (idle, data, peers, reforming) + profiling + other = reserved.

    idle: no job held the device. data: for samples, or for the pace of the shared stream. peers: for the other
    trainers of the group. reforming: groups were being formed. other: evaluation, checkpoints, and epochs that were
    cut before they could say.
    """

    device: int
    reserved: float
    computing: float
    idle: float
    data: float
    peers: float
    reforming: float
    profiling: float
    other: float

    @property
    def waiting(self) -> float:
        """Seconds that the device was reserved and did nothing for anybody."""
        return self.idle + self.data + self.peers + self.reforming


def device_times(history: RunHistory) -> tuple[DeviceTime, ...]:
    """One row a device, in order; epochs that were trained again count with both their times."""
    spans: dict[int, list[DeviceSpan]] = defaultdict(list)
    for span in history.spans:
        spans[span.device].append(span)
    epochs = (*history.epochs, *history.superseded)
    return tuple(_device(history, device, spans[device], epochs) for device in history.devices)


def mean_waiting(times: tuple[DeviceTime, ...]) -> float:
    """Average waiting time of a device in seconds; 0 without devices."""
    return sum(time.waiting for time in times) / len(times) if times else 0.0


def _device(history: RunHistory, device: int, spans: list[DeviceSpan], epochs: tuple[Epoch, ...]) -> DeviceTime:
    reserved = _reserved(history, device)
    held = sum(span.seconds for span in spans)
    reforming = _reforming(history, spans)
    profiling = sum(m.seconds for m in history.measurements if device in m.devices)
    waits = [epoch.waited[device] for epoch in epochs if device in epoch.waited]
    data, peers = sum(wait.data for wait in waits), sum(wait.peers for wait in waits)
    computing = sum(epoch.computed.get(device, 0.0) for epoch in epochs)
    return DeviceTime(
        device=device,
        reserved=reserved,
        computing=computing,
        idle=max(0.0, reserved - held - reforming - profiling),
        data=data,
        peers=peers,
        reforming=reforming,
        profiling=profiling,
        other=max(0.0, held - computing - data - peers),
    )


def _reserved(history: RunHistory, device: int) -> float:
    """Seconds of the sessions which had this device; a session that names no machine had it."""
    sessions = (s for s in history.sessions if s.cluster is None or device < s.cluster.size)
    return sum(session.end - session.start for session in sessions)


def _reforming(history: RunHistory, spans: list[DeviceSpan]) -> float:
    """Seconds of forming groups; forming that overlapped the job before it (or the session's start) costs nothing."""
    seconds, session, free = 0.0, -1, 0.0
    for span in sorted(spans, key=lambda span: span.start):
        if span.session != session:
            session, free = span.session, history.sessions[span.session].start
        seconds += min(span.reforming, max(0.0, span.start - free))
        free = span.end
    return seconds
