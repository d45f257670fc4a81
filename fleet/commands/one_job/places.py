"""The device of each rank of `fleet train`, and whether all ranks were put well."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from fleet.commands.one_job.options import TrainError, TrainOptions
from fleet.machine.binding import RankFacts, check_binding, from_mapping, own_facts
from fleet.machine.cluster_map import Place
from fleet.machine.devices import NoSuchDevice, cores_near, device_of, settle_cores
from trainers import Group
from trainers.device.own_device import select


def own_device(kind: str, local: int) -> torch.device:
    """The device of the `local`-th trainer of this machine, as this thread's.

    Raises:
        TrainError: there is none of this kind.
    """
    try:
        device = torch.device(device_of(kind, local))
    except NoSuchDevice as error:
        raise TrainError(f"--device {kind}: {error}") from None
    select(device)
    return device


def compute_near(group: Group, device: torch.device) -> None:
    """Let members compute on cores near their devices, as far as they have some; all members call it."""
    properties = None if device.type == "cpu" else torch.get_device_module(device).get_device_properties(device)
    mine = {
        "host": socket.gethostname(),
        "cores": sorted(os.sched_getaffinity(0)),
        "near": [] if properties is None else cores_near(properties),
    }
    told = told_by_all(group, mine)
    hosts = [each["host"] for each in told]
    cores, near = ([each[name] for each in told] for name in ("cores", "near"))
    settle_cores(partial(told_by_all, group), group.index, cores, near, [hosts.index(host) for host in hosts])


def told_by_all(group: Group, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """What all members give, in their order, on each of them."""
    everything: list[dict[str, Any]] = group.bcast_tree(group.gather_trees(mine))
    return everything


def check_places(group: Group, device: torch.device, options: TrainOptions) -> None:
    """Refuse, as `fleet run` does, ranks that share a GPU, or that have none where others have. All members call it.

    Raises:
        TrainError: on every member alike.
    """
    if group.size == 1:
        return
    own = json.dumps(asdict(_facts(group.ranks[group.index], device))).encode()
    everyone = _on_nodes([from_mapping(json.loads(part)) for part in group.gather_bytes(own)])
    findings = check_binding(everyone, options.threads) if everyone else []
    refused = "\n  ".join(finding.text for finding in findings if finding.refuses)
    refused = group.bcast_bytes(refused.encode()).decode()
    if refused:
        raise TrainError(refused)


def _facts(rank: int, device: torch.device) -> RankFacts:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return own_facts(Place(rank, 0, socket.gethostname(), "trainer", rank, str(device), cores, 0, 0, None))


def _on_nodes(facts: list[RankFacts]) -> list[RankFacts]:
    """The facts of all ranks, each with the number of its node: that of its lowest rank."""
    hosts = [rank.host for rank in facts]
    return [replace(rank, node=hosts.index(rank.host)) for rank in facts]
