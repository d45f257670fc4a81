"""Which jobs may have devices of different kinds (EasyScale, SC'23, 3.3)."""

from __future__ import annotations

import torch

from fleet.machine.cluster_map import ClusterMap
from fleet.workers.runtime import Runtime
from trainers import scan
from trainers.repeatable.process_settings import no_exit
from trainers.repeatable.scan import by_multiprocessors

UNLIKE_MODELS = (
    "its accelerators are of several models ({models}), whose libraries choose kernels of their own, and nobody has "
    "tried D2 on two of them"
)


def mixes_kinds(runtime: Runtime, cluster: ClusterMap, job: str) -> tuple[bool, str]:
    """Whether a job may have devices of different kinds, and if not, why: it takes determinism D2.

    On processors that is enough. On accelerators the kinds are to be of one model, and a scan of the job's network is
    to find nothing in it whose bits hang on the device: kernels that makers tune, random draws and sums.
    """
    level = runtime.spec.determinism.level
    if level != "D2":
        return False, f"determinism is {level}; only D2 gives the same bits on mixed kinds"
    if cluster.device_name == "cpu":
        return True, ""
    models = sorted({place.device_model or "unknown" for place in cluster.trainers})
    if len(models) > 1:
        return False, UNLIKE_MODELS.format(models=", ".join(models))
    if len(cluster.kinds) < 2:
        return False, "there is one kind of device"
    found = _found(runtime, job)
    return not found, found


def stays_on_one(runtime: Runtime, cluster: ClusterMap, job: str) -> list[str]:
    """Why a job keeps to one kind of accelerator although the run is at D2, in a sentence; else nothing."""
    if runtime.spec.determinism.level != "D2" or cluster.device_name == "cpu" or len(cluster.kinds) < 2:
        return []
    may, why = mixes_kinds(runtime, cluster, job)
    return [] if may else [f"job {job} keeps to one kind of device, as {why}"]


def _found(runtime: Runtime, job: str) -> str:
    """What of a job's network may have other bits on another kind of accelerator; empty: nothing."""
    try:
        with no_exit(), torch.device("meta"):
            model = runtime.task(job).model()
        seen = scan(model)
        found = (*seen.vendor, *seen.replaced, *seen.unread, *by_multiprocessors(model))
    except (Exception, SystemExit) as error:
        return f"its network could not be looked at: {error}"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"its bits may hang on the device: {found[0]}{more}" if found else ""
