"""What ranks load before a run begins, so that nothing waits for it later."""

from __future__ import annotations

import importlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.coordination.failures import survives_losses
from fleet.machine.cluster_map import COORDINATOR, ClusterMap, Place, gather_at_coordinator
from fleet.machine.devices import ON_DEVICES
from fleet.machine.horovod import HorovodMissing, load_horovod
from fleet.machine.launch.launched import launched_by_us, loading
from fleet.session.opening.trial import try_to_send
from fleet.session.options import RunOptions
from fleet.workers.agreement import BadInput, agree
from trainers.device.device_streams import select
from trainers.device.memory import keep_to_share

if TYPE_CHECKING:
    from mpi4py import MPI


HOROVOD = "--reduce horovod lets each trainer have a device of its own, and {why}; leave --reduce out"
"""What is told where they share."""


def warm_up(place: Place, members: int) -> None:
    """Do now, on all ranks at once, what takes long at first, and would be booked as the first group's forming.

    A trainer's device is its main thread's from here on; as one of so many members it keeps to its share.
    """
    import torch

    device = torch.device(place.device_name or "cpu")
    if place.is_trainer:
        select(device)
        keep_to_share(device, members)
        torch.zeros(1, device=device)
    if place.rank == COORDINATOR:
        with loading(), suppress(ImportError):
            importlib.import_module("tensorboard.summary.writer.record_writer")


def chosen_reduction(
    world: MPI.Intracomm, cluster: ClusterMap, options: RunOptions, seconds: float
) -> tuple[RunOptions, tuple[str, ...]]:
    """Return the options with what adds gradients, and what is to be told; if Horovod adds, the trainers load it.

    seconds: trainers may wait so long for each other's devices.

    Raises:
        BadInput: on every rank alike, if one of them cannot add so.
    """
    if options.reduce == "mpi" or (options.rehearse and not options.reduce):  # rehearsed trainers may share a device
        return replace(options, reduce="mpi"), ()
    if options.reduce == "horovod" and survives_losses():
        raise BadInput(
            "--reduce horovod: Horovod cannot go on without a rank that is lost, and this MPI was started to let the "
            "others go on; start it without --with-ft ulfm"
        )
    place, over_horovod = cluster.places[world.rank], options.reduce == "horovod"
    errors = _said(world, cluster, (_no_horovod if over_horovod else _no_device)(place) if place.is_trainer else "")
    errors += sharing(cluster, options, HOROVOD if over_horovod else ON_DEVICES)
    cut = [] if errors or over_horovod else _said(world, cluster, try_to_send(world, cluster, seconds))
    if cut:
        errors = [ON_DEVICES.format(why=f"these do not ({cut[0]})")]
    if errors and options.reduce:
        raise BadInput(errors[0])
    told = (f"devices do not send to each other ({cut[0]}); gradients are added on the hosts",) if cut else ()
    return replace(options, reduce=options.reduce or ("mpi" if errors else "device")), told


def _said(world: MPI.Intracomm, cluster: ClusterMap, error: str) -> list[str]:
    """What each rank that cannot do its part says of it, on every rank."""
    said = gather_at_coordinator(world, {"error": error})

    def told() -> list[str]:
        pairs = zip(cluster.places, said)
        return [f"rank {place.rank} on {place.host}: {each['error']}" for place, each in pairs if each["error"]]

    return agree(world, told, list)


def _no_horovod(place: Place) -> str:
    try:
        load_horovod()
    except HorovodMissing as found:
        return str(found)
    return ""


def _no_device(place: Place) -> str:
    """Why a trainer cannot add on its device."""
    import torch

    from trainers.messages.torch_backend import why_not

    why = why_not(torch.device(place.device_name or "cpu"))
    return ON_DEVICES.format(why=why) if why else ""


def sharing(cluster: ClusterMap, options: RunOptions, rule: str) -> list[str]:
    """Which trainers have one accelerator, as far as nobody has refused that; none can send to the other then."""
    held = Counter((each.host, each.device_name) for each in cluster.trainers if each.device_name not in (None, "cpu"))
    why = [f"{number} trainers share {name} on {host}" for (host, name), number in held.items() if number > 1]
    known = options.rehearse or cluster.members > 1 or launched_by_us()  # else each may be shown one of its own
    return [rule.format(why=each) for each in why] if known else []
