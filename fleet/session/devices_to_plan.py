"""The devices of a run as policies see them."""

from __future__ import annotations

from itertools import groupby

from fleet.machine.cluster_map import ClusterMap
from fleet.scheduling.model.cluster import Cluster


def devices_to_plan(ranks: ClusterMap) -> Cluster:
    """Return the cluster that a run's policy divides among its jobs.

    Neighbours of one kind on a node stand for a node, as a group of these needs no other.
    """
    runs = [list(run) for _, run in groupby(ranks.trainers, key=lambda place: (place.node, place.kind))]
    kinds = tuple(run[0].kind or "" for run in runs) if len(ranks.kinds) > 1 else ()
    return Cluster(tuple(map(len, runs)), kinds, ranks.sharing)
