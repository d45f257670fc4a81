"""Where the ranks were put: what each finds out about its GPUs and cores, and mistakes in that, with their mends."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from fleet.cluster.batch_systems import allocated_nodes
from fleet.machine.cluster_map import Place, gather_at_coordinator
from fleet.machine.devices import MASKS, has_gpus
from fleet.machine.launch.launched import launched_by_us

if TYPE_CHECKING:
    from mpi4py import MPI


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
    """Return what this rank finds out."""
    seen = _gpus(environment) if place.is_trainer or has_gpus() else ()  # torch is much to load for nothing
    device = place.device_name or ""
    _, _, index = device.partition(":")
    ours = launched_by_us(environment)  # our own mpiexec knows nothing of an allocation
    return RankFacts(
        place.rank,
        place.node,
        place.host,
        device,
        seen[int(index)] if index and int(index) < len(seen) else "",
        seen,
        _mask(environment),
        place.cores,
        tuple(map(_twin, place.cores)),
        psutil.cpu_count() or len(place.cores),
        *((None, None) if ours else allocated_nodes(environment)),
    )


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


def _twin(core: int) -> int:
    """The lowest logical core of the physical one that `core` is part of."""
    try:
        text = Path(_SIBLINGS.format(core=core)).read_text()
    except OSError:
        return core
    return min(int(part.partition("-")[0]) for part in text.strip().split(","))


Facts = Sequence[RankFacts]


@dataclass(frozen=True)
class BindingFinding:
    """One thing that is wrong. refuses: the run cannot be begun so; else it goes on, more slowly than it could."""

    text: str
    refuses: bool = False


def check_binding(facts: Facts, threads: int, members: int = 1) -> list[BindingFinding]:
    """All that is wrong, what refuses first.

    Args:
        facts: the facts of all ranks.
        threads: CPU threads of a trainer, as the spec says.
        members: trainers that may share a GPU, likewise.
    """
    checks: list[Callable[[Facts, int], Iterator[BindingFinding]]] = [
        _mixed,
        partial(_shared_gpu, members=members),
        _blind,
        partial(_idle_gpu, members=members),
        _hidden_gpu,
        _crowded,
        _twins,
        _threads,
        _idle_nodes,
    ]
    found = [finding for check in checks for finding in check(facts, threads)]
    return sorted(found, key=lambda finding: not finding.refuses)


def _mixed(facts: Facts, threads: int) -> Iterator[BindingFinding]:
    kinds = defaultdict(list)
    for rank in facts:
        if rank.is_trainer:
            kinds[rank.device.partition(":")[0]].append(rank)
    if "cpu" in kinds and len(kinds) > 1:
        hosts = ", ".join(sorted({rank.host for rank in kinds["cpu"]}))
        yield BindingFinding(
            f"ranks {_ranks(kinds['cpu'])} on {hosts} see no GPU and the others do: their bits and speed would be "
            "others. Ask for GPUs on all nodes, or set the device to cpu",
            refuses=True,
        )


def _shared_gpu(facts: Facts, threads: int, members: int) -> Iterator[BindingFinding]:
    holders = defaultdict(list)
    for rank in facts:
        if rank.gpu:
            holders[rank.node, rank.gpu].append(rank)
    for (_, gpu), ranks in holders.items():
        if len(ranks) <= members:
            continue
        first, known = ranks[0], len(ranks[0].seen)
        if first.mask and all(rank.mask == first.mask for rank in ranks) and known < _node_gpus(facts, first, members):
            mend = f"{first.mask} is the same for all and hides others: unset it, or let the launcher mask each rank"
        else:
            mend = f"start at most {known * members} trainers on a node with {known}, "
            mend += "" if members > 1 else "let the launcher show each rank one of its own (srun --gpus-per-task=1), "
            mend += f"or let so many share it (resources.members_per_device: {len(ranks)})"
        rule = "each would wait for the others" if members == 1 else f"resources.members_per_device is {members}"
        yield BindingFinding(f"ranks {_ranks(ranks)} on {first.host} share GPU {gpu}, and {rule}; {mend}", True)


def _blind(facts: Facts, threads: int) -> Iterator[BindingFinding]:
    """The scheduler gave GPUs, and torch sees none."""
    blind = [rank for rank in facts if rank.device == "cpu" and rank.node_gpus]
    if blind and not any(rank.seen for rank in facts):
        mask = f", or {blind[0].mask} hides them" if blind[0].mask else ""
        yield BindingFinding(
            f"the scheduler gave {blind[0].host} {blind[0].node_gpus} GPUs, torch sees none: it was built for "
            f"CPUs, a module is not loaded{mask}. See `fleet doctor`; to train on CPUs set the device to cpu"
        )


def _idle_gpu(facts: Facts, threads: int, members: int) -> Iterator[BindingFinding]:
    for host, ranks in _nodes(facts):
        used = {rank.gpu for rank in ranks if rank.gpu}
        idle = sorted({gpu for rank in ranks for gpu in rank.seen} - used)
        if not idle or not used:
            continue
        keepers = [rank for rank in ranks if not rank.is_trainer and set(rank.seen) & set(idle)]
        if keepers and all(len(rank.seen) == 1 for rank in ranks if rank.seen):
            yield BindingFinding(
                f"ranks {_ranks(keepers)} on {host} prepare samples, and hold GPU {', '.join(idle)}: "
                "ask for the GPUs of a node as a whole (--gpus-per-node, --gpu-bind=none) and not for one a rank"
            )
        else:
            trainers = sum(rank.is_trainer for rank in ranks)
            yield BindingFinding(
                f"nobody trains on GPU {', '.join(idle)} of {host}: it has {trainers} trainers; start "
                f"{len(ranks) + len(idle) * members} ranks there"
            )


def _hidden_gpu(facts: Facts, threads: int) -> Iterator[BindingFinding]:
    """The node has more GPUs than any of its ranks is shown."""
    for host, ranks in _nodes(facts):
        seen, given = {gpu for rank in ranks for gpu in rank.seen}, ranks[0].node_gpus
        if seen and given is not None and len(seen) < given:
            mask = next((rank.mask for rank in ranks if rank.mask), "a mask")
            yield BindingFinding(
                f"{host} was given {given} GPUs, and its ranks see {len(seen)}: {mask} hides the rest; unset it"
            )


def _crowded(facts: Facts, threads: int) -> Iterator[BindingFinding]:
    for host, ranks in _nodes(facts):
        sets = sorted({rank.cores for rank in ranks}, key=len)
        for cores in sets:
            inside = [rank for rank in ranks if set(rank.cores) <= set(cores)]
            if len(inside) > len(cores):
                yield BindingFinding(
                    f"{len(inside)} ranks on {host} ({_ranks(inside)}) have {len(cores)} core"
                    f"{'s' if len(cores) > 1 else ''} together ({ranges(cores)}): give each its own "
                    "(srun --cpus-per-task, mpirun --bind-to none, jsrun -c and -b packed)"
                )
                break


def _twins(facts: Facts, threads: int) -> Iterator[BindingFinding]:
    """Ranks with cores of their own that are halves of the same physical ones."""
    for host, ranks in _nodes(facts):
        holders: defaultdict[int, set[int]] = defaultdict(set)
        for rank in ranks:
            if len(rank.cores) < rank.node_cores:
                for twin in rank.twins:
                    holders[twin].add(rank.rank)
        apart = {rank.rank: rank.cores for rank in ranks}
        pairs = sorted(
            {
                (one, other)
                for together in holders.values()
                for one in together
                for other in together
                if one < other and not set(apart[one]) & set(apart[other])
            }
        )
        if pairs:
            one, other = pairs[0]
            yield BindingFinding(
                f"ranks {one} and {other} on {host} compute on the two threads of the same cores ({ranges(apart[one])} "
                f"and {ranges(apart[other])}{f'; so do {len(pairs) - 1} more pairs' if len(pairs) > 1 else ''}): count "
                "physical cores (srun --hint=nomultithread, or twice the --cpus-per-task)"
            )


def _threads(facts: Facts, threads: int) -> Iterator[BindingFinding]:
    few = [rank for rank in facts if rank.is_trainer and len(rank.cores) < threads]
    if few:
        yield BindingFinding(
            f"resources.threads is {threads}, and ranks {_ranks(few)} may use {min(len(rank.cores) for rank in few)} "
            "cores: give each rank as many cores (srun --cpus-per-task); a lower resources.threads changes results"
        )


def _idle_nodes(facts: Facts, threads: int) -> Iterator[BindingFinding]:
    given, used = facts[0].nodes, len(_nodes(facts))
    if given is not None and used < given:
        yield BindingFinding(
            f"the allocation has {given} nodes, and all ranks are on {used}: spread them (srun --ntasks-per-node, "
            "mpirun --map-by ppr:N:node)"
        )


def _nodes(facts: Facts) -> list[tuple[str, list[RankFacts]]]:
    """The host and the ranks of each node."""
    nodes = defaultdict(list)
    for rank in facts:
        nodes[rank.node].append(rank)
    return [(ranks[0].host, ranks) for ranks in nodes.values()]


def _node_gpus(facts: Facts, place: RankFacts, members: int) -> int:
    """GPUs of a rank's node, as far as anybody there knows."""
    here = [rank for rank in facts if rank.node == place.node]
    known = {gpu for rank in here for gpu in rank.seen}
    return max(len(known), place.node_gpus or 0, -(-sum(rank.is_trainer for rank in here) // members))


def _ranks(ranks: Sequence[RankFacts]) -> str:
    return ranges(tuple(rank.rank for rank in ranks))


def ranges(numbers: tuple[int, ...]) -> str:
    """Consecutive numbers joined: 0-3,8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
