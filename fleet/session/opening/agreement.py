"""What rank 0 finds out for all ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fleet.machine.cluster_map import COORDINATOR, broadcast
from fleet.session.bad_input import BadInput
from fleet.session.ending import MENDABLE
from fleet.spec import EnsembleSpec

if TYPE_CHECKING:
    from mpi4py import MPI

_T = TypeVar("_T")


def agree(world: MPI.Intracomm, find: Callable[[], Any], read: Callable[[Any], _T]) -> _T:
    """Let rank 0 find something out and tell all; an error of its is every rank's.

    Args:
        find: gives JSON-able values, on rank 0.
        read: makes the result out of them.

    Raises:
        BadInput: on the other ranks, with what a person got wrong; rank 0 raises the error itself.
    """
    said: dict[str, Any] = {}
    failure: BaseException | None = None
    if world.rank == COORDINATOR:
        try:
            said = {"value": find()}
        except MENDABLE as error:
            failure, said = error, {"error": str(error)}
    said = json.loads(broadcast(world, json.dumps(said)))
    if "error" in said:
        raise failure if failure is not None else BadInput(said["error"])
    return read(said["value"])


def agree_on_spec(world: MPI.Intracomm, find: Callable[[], EnsembleSpec], folder: Path) -> EnsembleSpec:
    """Let rank 0 read and validate the spec; the others take its word, and read those of its jobs that they train.

    Args:
        find: gives the spec, on rank 0.
        folder: where its modules and relative paths are looked for.

    Raises:
        BadInput: as `agree`.
    """
    found: list[EnsembleSpec] = []
    lines = ""

    def told() -> dict[str, Any]:
        nonlocal lines
        found.append(find())
        values, lines = found[0].to_lines()
        return values

    values = agree(world, told, lambda value: value)
    lines = broadcast(world, lines)
    return found[0] if found else EnsembleSpec.from_lines(values, lines, folder)
