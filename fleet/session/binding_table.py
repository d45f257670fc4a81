"""The binding table: which rank sits where, with what."""

from __future__ import annotations

from rich.table import Table

from fleet.machine.binding import ranges
from fleet.machine.cluster_map import ClusterMap, Place
from fleet.report.terminal import plain_table

_MOST_ROWS = 2_000


def binding_table(cluster: ClusterMap) -> Table:
    """One row a rank: node, host, role, device, cores; of very many ranks the first."""
    shared = f": up to {cluster.members} trainers share a device" if cluster.members > 1 else ""
    table = plain_table(f"binding{shared}")
    for column in ("rank", "node", "host", "role", "device", "cores"):
        table.add_column(column, no_wrap=True)
    for place in cluster.places[:_MOST_ROWS]:
        table.add_row(*_row(cluster, place))
    if len(cluster.places) > _MOST_ROWS:
        table.caption = f"and {len(cluster.places) - _MOST_ROWS:,} ranks more"
    return table


def _row(cluster: ClusterMap, place: Place) -> tuple[str, ...]:
    known = ", ".join(word for word in (place.device_name, place.kind) if word)
    device = "-" if place.device is None else f"{place.device} ({known})"
    return str(place.rank), str(cluster.nodes.index(place.node)), place.host, place.role, device, ranges(place.cores)
