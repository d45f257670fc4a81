"""How large a batch may be by memory, data, rings and wish, and how it is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.machine.cluster_map import ClusterMap
from fleet.profiling.sizing import size_of
from fleet.session.batch_bounds import BatchBound, BatchBounds
from fleet.session.input_checks import BatchTrials, check_input, grown_size, rooms_of
from fleet.session.lanes import ring_plan
from fleet.workers.runtime import Runtime
from tests.session.conftest import SAMPLES

WIDE = {"name": "trainers.zoo:MLP", "arguments": {"inputs": 48, "widths": [200, 200]}}


def bounds(runtime: Runtime, cluster: ClusterMap) -> BatchBounds:
    sizes = check_input(runtime, cluster, BatchTrials({}))
    return BatchBounds(runtime, cluster, rooms_of(runtime.spec, cluster), sizes)


def with_memory(cluster: ClusterMap, **values: Any) -> ClusterMap:
    return replace(cluster, places=tuple(replace(place, **values) for place in cluster.places))


def asking(runtime: Callable[..., Runtime], batch_size: Any = "largest", samples: int = 0, **keys: Any) -> Runtime:
    made = runtime({"name": "net", "batch_size": batch_size, **keys})
    if not samples:
        return made
    return replace(made, facts={"numbers": replace(made.facts["numbers"], samples=samples)})


@pytest.mark.parametrize(
    "batch_size, bound", [("largest", BatchBound(SAMPLES // 2, "data")), ({"most": 7}, BatchBound(7, "most"))]
)
def test_a_batch_is_no_larger_than_the_data_or_the_wish(
    runtime: Callable[..., Runtime], cluster: Callable[..., ClusterMap], batch_size: Any, bound: BatchBound
) -> None:
    made = asking(runtime, batch_size)
    assert bounds(made, cluster()).of(made.job("net")) == bound


@pytest.mark.parametrize("device_bytes", [None, 40 << 20])
def test_memory_bounds_it_at_what_the_check_of_memory_lets_pass(
    runtime: Callable[..., Runtime], cluster: Callable[..., ClusterMap], device_bytes: int | None
) -> None:
    made = asking(runtime, samples=10**6, model=WIDE)
    machine = with_memory(cluster(trainers=2), device_bytes=device_bytes, node_bytes=80 << 20)
    found = bounds(made, machine).of(made.job("net"))
    assert found.limit == "memory"

    def needs(size: int) -> int:
        task = made.with_batch("net", size).task("net")
        sized = size_of(task, made.data_of("net").layout)
        return sized.cpu_bytes(2) if device_bytes is None else sized.device_bytes(2)

    assert needs(found.size) <= 40 << 20 < needs(found.size + 2), "a trainer's share of the host, or the device"
    check_input(made.with_batch("net", found.size), machine, BatchTrials({}))


def test_shared_memory_bounds_it(runtime: Callable[..., Runtime], cluster: Callable[..., ClusterMap]) -> None:
    made = asking(runtime, samples=10**6)
    machine = with_memory(cluster(), shared_bytes=3 << 20)
    found = bounds(made, machine).of(made.job("net"))
    assert found.limit == "ring"
    sizes = (ring_plan(made.with_batch("net", found.size + more), 1, 1).node_bytes(2) for more in (0, 1))
    assert [size <= 3 << 20 for size in sizes] == [True, False]


def test_other_jobs_keep_their_room(runtime: Callable[..., Runtime], cluster: Callable[..., ClusterMap]) -> None:
    """Both must fit a host together: the memory check would refuse the run's next start otherwise."""
    large: Mapping[str, Any] = {"name": "large", "model": WIDE, "batch_size": 24}
    made = runtime({"name": "net", "batch_size": "largest", "model": WIDE}, large)
    made = replace(made, facts={"numbers": replace(made.facts["numbers"], samples=10**6)})
    other = size_of(made.task("large"), made.data_of("large").layout).cpu_bytes(2)
    host = int(1.2 * other)
    machine = with_memory(cluster(trainers=2), node_bytes=host)
    assert grown_size(made, "net").at(1).cpu_bytes(2) + other < host or other < host
    sizes = {name: grown_size(made, name).at(1) for name in ("net", "large")}
    sizes["large"] = size_of(made.task("large"), made.data_of("large").layout)
    found = BatchBounds(made, machine, rooms_of(made.spec, machine), sizes).of(made.job("net"))
    assert found.size == 1 and found.limit == "memory"


def test_a_network_that_nothing_sizes_is_told(
    runtime: Callable[..., Runtime], cluster: Callable[..., ClusterMap]
) -> None:
    unsized = {"name": "tests.session.test_batch_bounds:Unsized"}
    made = asking(runtime, model=unsized)
    with pytest.raises(ValueError, match=r"meta device.* give batch_size a number, or \{most: N\}"):
        bounds(made, cluster()).of(made.job("net"))
    made = asking(runtime, {"most": 9}, model=unsized)
    assert bounds(made, cluster()).of(made.job("net")) == BatchBound(9, "most")


def Unsized() -> Any:
    """A network that looks at its numbers, and so cannot be run where there are none."""
    import torch
    from torch import nn

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(48, 10)

        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.layer(pictures.flatten(1))
            return found if float(found.sum()) > 0 else -found

    return Looks()
