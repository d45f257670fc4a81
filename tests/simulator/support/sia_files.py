"""A small folder of profiles in the form of Sia's: one network on two kinds of device, `fast` and `slow`."""

import json
from pathlib import Path

FILES = {
    "validation-8.csv": "progress,iteration,metric,grad_sqr,grad_var\n100,100,0,1,1\n300,300,0,1,15\n",
    "validation-64.csv": "progress,iteration,metric,grad_sqr,grad_var\n120,20,0,1,1\n310,60,0,1,15\n",
}
SECONDS = {"fast": 0.01, "slow": 0.03}
"""Of a sample."""


def write_sia_rates(folder: Path, restart: float = 20.0) -> Path:
    """Two devices a node: a sample takes as long as SECONDS says, and gradients 0.02 s on two devices, 0.04 s on four.

    Returns:
        The folder of the profiles.
    """
    (folder / "profiles" / "net").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / "profiles" / "net" / name).write_text(text)
    for kind, seconds in SECONDS.items():
        lines = ["local_bsz,step_time,sync_time,placement"]
        for placement, sync in ((1, 0.001), (2, 0.02), (11, 0.04), (22, 0.04)):
            lines += [f"{local},{local * seconds + sync},{sync},{placement}" for local in (2, 8, 16)]
        (folder / "profiles" / "net" / f"placements-{kind}.csv").write_text("\n".join(lines) + "\n")
        scalability = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
        rows = [f"4,8,{local},{local * seconds + 0.05},0.05\n" for local in (2, 8, 16)]
        (folder / "profiles" / "net" / f"scalability-{kind}.csv").write_text(scalability + "".join(rows))
    constants = {"apps": {"net": {"epochs": 2, "rescale_s": restart, "policy_restart_penalty_s": 10, "slowdown": 2.0}}}
    (folder / "config.json").write_text(json.dumps(constants))
    return folder / "profiles"


def write_sia_trace(folder: Path, arrivals: list[float]) -> Path:
    """Jobs that come then, each on two devices with 16 samples."""
    file = folder / "workload.csv"
    rows = [f"net-{number},{time},net,2,16" for number, time in enumerate(arrivals)]
    file.write_text("\n".join(["name,time,application,num_replicas,batch_size", *rows]) + "\n")
    return file
