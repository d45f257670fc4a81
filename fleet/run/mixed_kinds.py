"""Which jobs may have devices of different kinds (EasyScale, SC'23, 3.3)."""

from __future__ import annotations

from fleet.run.ranks.runtime import Runtime

ON_ACCELERATORS = (
    "on accelerators dropout's draws and the order of sums depend on the number of multiprocessors, and nobody has "
    "tried D2 on two kinds of them"
)


def mixes_kinds(runtime: Runtime, device: str) -> tuple[bool, str]:
    """Whether jobs may have devices of different kinds, and if not, why: it takes determinism D2, on processors.

    Args:
        device: a trainer's, such as `cuda:0`.
    """
    if runtime.spec.determinism.level != "D2":
        return False, f"determinism is {runtime.spec.determinism.level}; only D2 gives the same bits on mixed kinds"
    return (True, "") if device == "cpu" else (False, ON_ACCELERATORS)
