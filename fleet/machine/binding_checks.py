"""Mistakes in where the ranks were put, and their mends; pure functions of the facts that the ranks found out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fleet.machine.binding_facts import RankFacts
from fleet.machine.number_ranges import ranges

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
        _mixed, partial(_shared_gpu, members=members), _blind, partial(_idle_gpu, members=members), _hidden_gpu,
        _crowded, _twins, _threads, _idle_nodes,
    ]  # fmt: skip
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
