"""Which jobs may have devices of different kinds (EasyScale, SC'23, 3.3)."""

from __future__ import annotations

from fleet.run.ranks.runtime import Runtime


def mixes_kinds(runtime: Runtime, job: str, device: str) -> tuple[bool, str]:
    """Whether a job's devices may be of different kinds, and if not, why.

    It takes determinism D2; on accelerators also a model for which D2 costs little. On CPUs it costs little always.

    Args:
        device: a trainer's, such as `cuda:0`.
    """
    if runtime.spec.determinism.level != "D2":
        return False, f"determinism is {runtime.spec.determinism.level}; only D2 gives the same bits on mixed kinds"
    if device == "cpu":
        return True, ""
    import torch

    from trainers import scan

    with torch.device("meta"):
        found = scan(runtime.task(job).model())
    return found.affordable, "" if found.affordable else str(found)
