"""Which ways of adding gradients trainers have that share a device."""

from __future__ import annotations

from pathlib import Path

from fleet.machine.cluster_map import pretended
from fleet.machine.devices import ON_DEVICES
from fleet.session.main import HOROVOD, sharing
from fleet.session.options import RunOptions

ASKED = RunOptions(Path("spec.yaml"))


def test_trainers_that_share_a_device_are_told_for_each_way() -> None:
    cluster = pretended((4,), 1, "cuda", "node", members=2)
    for rule, mend in ((HOROVOD, "leave --reduce out"), (ON_DEVICES, "leave --reduce out, or give mpi")):
        first, second = sharing(cluster, ASKED, rule)
        assert "2 trainers share cuda:0 on node" in first and "cuda:1" in second and first.endswith(mend)


def test_trainers_on_processors_share_nothing() -> None:
    assert sharing(pretended((4,), 1, "cpu", "node"), ASKED, HOROVOD) == []
    assert sharing(pretended((4,), 1, "cuda", "node"), ASKED, HOROVOD) == []
