"""Wrong launch lines, as the ranks see them, each with its message; and right ones, with none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.machine.binding import RankFacts, check_binding
from fleet.machine.cluster_map import ClusterError, _refuse_singletons

CORES = 40


def node(
    trainers: int, gpus: int, number: int = 0, preprocessors: int = 1, cores: int = 8, device: str = "cuda"
) -> list[RankFacts]:
    """One node as it should be: each trainer with a GPU of its own, each rank with cores of its own."""
    seen = tuple(f"GPU-{number}{index}" for index in range(gpus))
    ranks = []
    for place in range(preprocessors + trainers):
        index = place - preprocessors
        has = index >= 0 and gpus > 0
        own = tuple(range(place * cores, (place + 1) * cores))
        kind = (f"{device}:{index % gpus}" if gpus else "cpu") if index >= 0 else ""
        gpu = seen[index % gpus] if has else ""
        ranks.append(
            RankFacts(
                place + number * 100, number, f"n{number}", kind, gpu, seen, "", own, own, CORES, nodes=1,
                node_gpus=gpus or None,
            )
        )  # fmt: skip
    return ranks


def one_each(ranks: list[RankFacts]) -> list[RankFacts]:
    """The launcher shows each rank a GPU of its own, also those that prepare samples."""
    return [
        replace(rank, seen=(f"GPU-x{place}",), gpu=f"GPU-x{place}" if rank.is_trainer else "", mask=f"M={place}")
        for place, rank in enumerate(ranks)
    ]


def same_mask(ranks: list[RankFacts]) -> list[RankFacts]:
    return [
        replace(rank, seen=("GPU-00",), gpu="GPU-00" if rank.is_trainer else "", mask="CUDA_VISIBLE_DEVICES=0")
        for rank in ranks
    ]


def on(cores: range, ranks: list[RankFacts]) -> list[RankFacts]:
    return [replace(rank, cores=tuple(cores), twins=tuple(cores)) for rank in ranks]


def halves(ranks: list[RankFacts]) -> list[RankFacts]:
    """Logical core c and c + 20 are one physical core."""
    return [replace(rank, twins=tuple(core % 20 for core in rank.cores)) for rank in ranks]


def blind(ranks: list[RankFacts]) -> list[RankFacts]:
    return [replace(rank, node_gpus=4) for rank in ranks]


WRONG: dict[str, tuple[list[RankFacts], bool, list[str]]] = {
    "too few GPUs": (node(5, 4, cores=6), True, ["ranks 1,5 on n0 share GPU", "at most 4 trainers"]),
    "one mask for all": (same_mask(node(4, 4)), True, ["1-4", "CUDA_VISIBLE_DEVICES=0 is the same for all", "unset"]),
    "too many GPUs": (node(3, 4), False, ["nobody trains on GPU GPU-03 of n0", "3 trainers", "5 ranks"]),
    "a GPU for who prepares samples": (one_each(node(3, 4)), False, ["ranks 0 on n0", "GPU-x0", "--gpu-bind=none"]),
    "a mask hides GPUs": (
        [replace(rank, node_gpus=4, mask="CUDA_VISIBLE_DEVICES=0,1") for rank in node(2, 2)],
        False, ["was given 4 GPUs", "see 2", "CUDA_VISIBLE_DEVICES=0,1"],
    ),
    "SMT doubling": (halves(node(4, 4)), False, ["the two threads of the same cores", "--hint=nomultithread"]),
    "one core for all": (on(range(1), node(4, 4)), False, ["5 ranks on n0", "1 core together (0)", "--cpus"]),
    "fewer cores than ranks": (on(range(3), node(4, 4)), False, ["5 ranks", "3 cores together (0-2)"]),
    "GPUs that torch does not see": (blind(node(4, 0)), False, ["gave n0 4 GPUs", "torch sees none", "doctor"]),
    "a node without GPUs": (node(4, 4) + node(4, 0, 1), True, ["101-104 on n1 see no GPU", "set the device to cpu"]),
    "fewer cores than threads": (node(4, 4, cores=1), False, ["resources.threads is 2", "1-4", "1 cores"]),
    "all on one node": ([replace(rank, nodes=3) for rank in node(4, 4)], False, ["3 nodes", "on 1", "--ntasks"]),
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_launch_line_is_told_with_its_mend(line: str) -> None:
    facts, refuses, words = WRONG[line]
    findings = check_binding(facts, threads=2)
    assert findings, "nothing was found"
    first = next((finding for finding in findings if all(word in finding.text for word in words)), None)
    assert first is not None, [finding.text for finding in findings]
    assert first.refuses is refuses
    assert findings == sorted(findings, key=lambda finding: not finding.refuses)


@pytest.mark.parametrize(
    "facts",
    [
        node(4, 4),
        node(4, 4) + node(4, 4, 1, preprocessors=0),
        node(4, 0),
        [replace(rank, seen=rank.seen if rank.is_trainer else ()) for rank in one_each(node(4, 4))],
        on(range(CORES), node(4, 4)),
    ],
    ids=["whole node", "two nodes", "CPUs", "one GPU shown to each trainer", "unbound"],
)
def test_nothing_is_said_of_a_right_one(facts: list[RankFacts]) -> None:
    facts = [replace(rank, nodes=len({rank.node for rank in facts})) for rank in facts]
    assert check_binding(facts, threads=2) == []


def test_as_many_trainers_share_a_gpu_as_may() -> None:
    assert check_binding(node(8, 4, cores=4), threads=2, members=2) == []
    (refused,) = check_binding(node(9, 4, cores=4), threads=2, members=2)
    assert refused.refuses and "ranks 1,5,9 on n0 share GPU GPU-00" in refused.text
    assert "resources.members_per_device is 2; start at most 8 trainers" in refused.text
    (idle,) = check_binding(node(3, 4, cores=4), threads=2, members=2)
    assert "it has 3 trainers; start 6 ranks there" in idle.text


def test_ranks_that_do_not_find_each_other_are_refused() -> None:
    _refuse_singletons(1, None)
    _refuse_singletons(1, 1)
    _refuse_singletons(4, 4)
    with pytest.raises(ClusterError, match=r"started 4 ranks.*--mpi=pmix.*--mpi=pmi2"):
        _refuse_singletons(1, 4)
