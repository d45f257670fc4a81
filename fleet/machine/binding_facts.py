"""What a rank finds out about where it was put: its GPUs, its cores, and what the launcher says of the whole job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from fleet.machine.cluster_map import Place, gather_at_coordinator
from fleet.machine.devices import MASKS, has_gpus
from fleet.machine.launch.launched import launched_by_us

if TYPE_CHECKING:
    from mpi4py import MPI

# Of a whole job or step, as launchers tell each rank.
_NODES = ("SLURM_JOB_NUM_NODES", "FLUX_JOB_NNODES")
_GPUS = ("SLURM_GPUS_ON_NODE",)
_SIBLINGS = "/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"


@dataclass(frozen=True)
class RankFacts:
    """One rank, as it was put.

    Attributes:
        device: a trainer's device, as torch names it; "" for others.
        gpu: what names its GPU whatever the mask is; "" without one.
        seen: names of all GPUs that torch shows it.
        mask: the variable that hides GPUs from it, as NAME=VALUE; "" without one.
        cores: logical ones that it may use.
        twins: the physical core of each, named by its lowest logical one.
        node_cores: logical cores of the node.
        nodes, node_gpus: the job's nodes and GPUs, as the launcher says; None where it does not.
    """

    rank: int
    node: int
    host: str
    device: str
    gpu: str
    seen: tuple[str, ...]
    mask: str
    cores: tuple[int, ...]
    twins: tuple[int, ...]
    node_cores: int
    nodes: int | None
    node_gpus: int | None

    @property
    def is_trainer(self) -> bool:
        return bool(self.device)


def gather_facts(comm: MPI.Intracomm, place: Place) -> tuple[RankFacts, ...]:
    """The facts of all ranks, on rank 0; none on the others. All call it."""
    return tuple(from_mapping(entry) for entry in gather_at_coordinator(comm, asdict(own_facts(place))))


def own_facts(place: Place, environment: Mapping[str, str] = os.environ) -> RankFacts:
    """What this rank finds out."""
    seen = _gpus(environment) if place.is_trainer or has_gpus() else ()  # torch is much to load for nothing
    device = place.device_name or ""
    _, _, index = device.partition(":")
    ours = launched_by_us(environment)  # our own mpiexec knows nothing of an allocation
    return RankFacts(
        place.rank, place.node, place.host, device,
        seen[int(index)] if index and int(index) < len(seen) else "",
        seen, _mask(environment), place.cores, tuple(map(_twin, place.cores)),
        psutil.cpu_count() or len(place.cores),
        *(None if ours else _number(names, environment) for names in (_NODES, _GPUS)),
    )  # fmt: skip


def from_mapping(entry: Mapping[str, Any]) -> RankFacts:
    """Facts from JSON."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    return RankFacts(**values)


def _gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """A name for each GPU that torch shows here: its UUID, or its place in the mask."""
    import torch

    if not torch.accelerator.is_available():
        return ()
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    mask = _mask(environment).partition("=")[2].split(",")
    names = []
    for index in range(torch.accelerator.device_count()):
        properties = module.get_device_properties(index)
        unique = getattr(properties, "uuid", None) or getattr(properties, "pci_bus_id", None)
        names.append(str(unique or (mask[index] if index < len(mask) and mask[index] else index)))
    return tuple(names)


def _mask(environment: Mapping[str, str]) -> str:
    return next((f"{name}={environment[name]}" for name in MASKS if name in environment), "")


def _number(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


def _twin(core: int) -> int:
    """The lowest logical core of the physical one that `core` is part of."""
    try:
        text = Path(_SIBLINGS.format(core=core)).read_text()
    except OSError:
        return core
    return min(int(part.partition("-")[0]) for part in text.strip().split(","))
