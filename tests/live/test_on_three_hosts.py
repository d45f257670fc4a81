"""A whole run over three hosts with nothing in common but files and a network: the bits are those of one device."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.virtual_hosts import virtual_hosts, why_not
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import SCALING, Ensemble, RunFolder, write_rates
from tests.live.support.processes import run

JOBS = ("mlp", "cnn", "count")
REASON = why_not()


@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_bits_are_those_of_one_device(small: Ensemble, alone: RunFolder) -> None:
    with virtual_hosts(3) as cluster:
        write_rates(small.folder / "scaling.json", dict.fromkeys(JOBS, SCALING))
        options = ("--trainers", "4", "--preprocessors", "2", "--set", "profile.file=scaling.json")
        command = small.plain("hosts", *options)
        ended = run([*cluster.mpiexec(2), *command], small.folder)
    assert ended.code == 0, ended.output
    folder = small.left("hosts")
    assert folder.summary["status"] == "done"
    ranks = folder.events("cluster")[0]["ranks"]
    assert Counter(rank["host"] for rank in ranks) == {"h1": 2, "h2": 2, "h3": 2}
    assert len({rank["node"] for rank in ranks}) == 3
    assert {rank["host"] for rank in ranks if rank["role"] == "trainer"} == {"h1", "h2", "h3"}
    first = folder.summary["rounds"][0]["allocation"].values()
    assert max(map(len, first)) > 1  # at least one network trained on more than one device
    assert_same_bits(final_states(folder, JOBS), final_states(alone, JOBS))
