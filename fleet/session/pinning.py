"""Processes started with what their level of determinism needs: libraries read it once, when they are loaded.

Local ranks get the variables from the process that starts them. A rank that srun, mpirun or jsrun started begins again
with them, before it starts MPI and loads torch for good.
"""

from __future__ import annotations

import os
from contextlib import suppress

from fleet.machine.launch.launched import launched_by_us
from fleet.session.options import RunOptions
from fleet.spec import EnsembleSpec, SpecError
from fleet.spec.ensemble import LARGEST_FILE
from preprocess.files.reading import read_bytes


def variables_of(spec: EnsembleSpec) -> dict[str, str]:
    """The variables that a run's ranks must be started with.

    Raises:
        trainers.InstructionSetError: they cannot be had here, or contradict this process's.
    """
    name = spec.determinism.pinned_to
    if name is None:
        return {}
    from trainers.repeatable.instruction_sets import environment  # loads torch

    return environment(name, spec.resources.threads, os.environ)


def pin_rank(options: RunOptions) -> None:
    """Begin this process again with the variables, if it needs them and has them not. Call it before MPI starts.

    A spec that cannot be read is left to those who report it.

    Raises:
        trainers.InstructionSetError: as `variables_of`.
    """
    if launched_by_us():
        return
    with suppress(SpecError, OSError):
        if not _may_be_pinned(options):
            return
        spec = options.load()
        if spec.determinism.pinned_to is not None:
            from trainers.repeatable.instruction_sets import restart

            restart(spec.determinism.pinned_to, spec.resources.threads)


def _may_be_pinned(options: RunOptions) -> bool:
    """Whether the spec may ask for a level that pins: most say nothing of it, and no rank but 0 need read those."""
    told = any("D2" in text for text in options.overrides)
    return told or options.extend is not None or b"D2" in read_bytes(os.fspath(options.spec), LARGEST_FILE)
