"""Waiting time per device, stacked by its reason (FLEET, MLSys'20, Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.report.figures.layout import Figure, axis, layout, time_unit, whole_ticks
from fleet.report.waiting import DeviceTime
from fleet.report.wording import duration

REASONS = {
    "idle": "idle, without a job",
    "data": "for samples or the pace",
    "peers": "for its group",
    "reforming": "re-forming groups",
}


def waiting_figure(times: Sequence[DeviceTime]) -> Figure | None:
    """One stacked bar a device; None without devices."""
    if not times:
        return None
    devices = [time.device for time in times]
    unit, word = time_unit(max(time.reserved for time in times))
    traces = [
        {
            "type": "bar",
            "name": title,
            "x": devices,
            "y": [getattr(time, reason) / unit for time in times],
            "text": [duration(getattr(time, reason)) for time in times],
            "textposition": "none",
            "marker": {"color": f"@{reason}"},
            "hovertemplate": f"device %{{x}}<br>{title}: %{{text}}<extra></extra>",
        }
        for reason, title in REASONS.items()
    ]
    edges = [min(devices) - 0.5, max(devices) + 0.5]
    x = axis("Device", range=edges, showgrid=False, zeroline=False, **whole_ticks(devices[0], devices[-1], most=20))
    y = axis(f"{word} waited", rangemode="tozero", nticks=6)
    return {"data": traces, "layout": layout(300, x, y, barmode="stack", bargap=0.25 if len(devices) > 3 else 0.7)}
