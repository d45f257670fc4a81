"""A trainer of a job on a device, joined to the others over torch.distributed.

python device_member.py TASK N STEPS DEVICE MEMBER MEMBERS FOLDER WAY [CHECKPOINT]

The master writes FOLDER/state.h5. WAY: of the gradients, "host" or "device"; with "host" all members share the device
where there is only one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tests.gpu import device_tasks
from trainers import Group, Trainer, read, write
from trainers.device.device_streams import select
from trainers.job.single_job import SingleJob, TaskDatasets
from trainers.messages.torch_backend import TorchTransport
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.reduce.ordered_reduce import OrderedReduce


def main(
    task: str, workers: int, steps: int, kind: str, member: int, members: int, folder: Path, way: str, *start: str
) -> None:
    torch.set_num_threads(1)
    device = torch.device(kind) if kind == "cpu" else torch.device(kind, member % torch.accelerator.device_count())
    select(device)
    dist.init_process_group("cpu:gloo", init_method=f"file://{folder}/store", rank=member, world_size=members)
    made = getattr(device_tasks, task)()
    with Group.over(TorchTransport(timeout=120)) as group:
        trainer = Trainer(
            made, workers, group, device, reducer=DeviceReducers(Communicators()) if way == "device" else OrderedReduce
        )
        if start:
            trainer.restore(read(Path(*start)) if group.is_master else None)
        with trainer.reducing():
            SingleJob(trainer, TaskDatasets(made), lambda news: None, lambda: False).run(steps)
        checkpoint = trainer.snapshot()
        if checkpoint is not None:
            write(folder / "state.h5", checkpoint)


if __name__ == "__main__":
    name, workers, steps, kind, member, members, folder, *rest = sys.argv[1:]
    main(name, int(workers), int(steps), kind, int(member), int(members), Path(folder), *rest)
