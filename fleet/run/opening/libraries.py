"""What ranks load before a run begins, so that nothing waits for it later."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING

from fleet.coordination.lost_ranks import survives_losses
from fleet.machine.cluster_map import COORDINATOR, ClusterMap, Place, gather
from fleet.machine.horovod import HorovodMissing, load_horovod
from fleet.run.bad_input import BadInput
from fleet.run.ranks.options import RunOptions
from trainers.device.device_room import keep_to_share
from trainers.device.own_device import select

if TYPE_CHECKING:
    from mpi4py import MPI


def warm_up(place: Place, members: int) -> None:
    """Import now, on all ranks at once, what is seconds of work later, and would be booked as the first group's
    forming. A trainer's device is its main thread's from here on; as one of so many members it keeps to its share.
    """
    import torch

    if place.is_trainer:
        device = torch.device(place.device_name or "cpu")
        select(device)
        keep_to_share(device, members)
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, device=place.device_name))], 0.1)  # imports torch's compiler
    elif place.rank == COORDINATOR:
        with suppress(ImportError):
            importlib.import_module("tensorboard.summary.writer.record_writer")


def load_reduction(world: MPI.Intracomm, cluster: ClusterMap, options: RunOptions) -> None:
    """Load Horovod on the trainers, if it adds gradients.

    Raises:
        BadInput: on every rank alike, if one of them cannot.
    """
    if options.reduce != "horovod":
        return
    if survives_losses():
        raise BadInput(
            "--reduce horovod: Horovod cannot go on without a rank that is lost, and this MPI was started to let the "
            "others go on; start it without --with-ft ulfm"
        )
    error = ""
    if cluster.places[world.rank].is_trainer:
        try:
            load_horovod()
        except HorovodMissing as found:
            error = str(found)
    for place, said in zip(cluster.places, gather(world, {"error": error})):
        if said["error"]:
            raise BadInput(f"rank {place.rank} on {place.host}: {said['error']}")
