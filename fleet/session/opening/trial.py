"""Whether the devices of a run's trainers send to each other: tried once, before it begins.

A library may be there, and the network that it wants may not: a wrong interface, a firewall, GPUs that do not reach
each other. Found out in the first group, that would fail one network after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch

from fleet.machine.cluster_map import ClusterMap
from trainers import Group
from trainers.messages.transport import PeerFailed
from trainers.reduce.device_reduce import Communicators

if TYPE_CHECKING:
    from mpi4py import MPI


def try_to_send(world: MPI.Intracomm, cluster: ClusterMap, seconds: float) -> str:
    """Let all trainers join one communicator, and each send to the one beside it; all ranks call it.

    Returns:
        Why this rank's device does not send; "" if it does, or is none, or is the only one.
    """
    from mpi4py import MPI

    place = cluster.places[world.rank]
    # Never freed: who gives up sends words that nobody may receive, and MPI would take them for another's.
    trainers = cast("MPI.Intracomm", world.Split(0 if place.is_trainer else MPI.UNDEFINED, world.rank))
    if not place.is_trainer or trainers.size == 1:
        return ""
    return _tried(trainers, torch.device(place.device_name or "cpu"), seconds)


def _tried(trainers: MPI.Intracomm, device: torch.device, seconds: float) -> str:
    communicators = Communicators()
    try:
        with Group.form(trainers, range(trainers.size), 0, seconds) as group:
            try:
                channel = communicators.take(group, device)
                channel.connected()
                group.barrier()  # others may still ask the master's store
                communicators.keep(group, channel)
            except PeerFailed as error:  # where its own end fails, the others would wait
                group.abort(str(error))
                raise
    except PeerFailed as error:
        return error.text
    except (RuntimeError, TimeoutError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        communicators.end()
    return ""
