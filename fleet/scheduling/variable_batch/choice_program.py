"""The integer program that gives each job one configuration or none, within the devices of each kind (Sia, 3.4)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats

NONE = -1
"""The choice of a job that gets nothing."""


class ChoiceProgram(NamedTuple):
    """Minimise the sum of the costs of what is chosen, at most one configuration a job.

    Attributes:
        costs: of each job in each configuration; inf where it may not have it; shape (jobs, configurations). Choosing
            nothing costs 0.
        devices: of each configuration; shape (configurations,).
        kinds: the number of each configuration's kind of device; shape (configurations,).
        capacity: devices of each kind; shape (kinds,).
        fixed: the configuration that a job has to keep, or NONE; shape (jobs,).
    """

    costs: Floats
    devices: Counts
    kinds: Counts
    capacity: Counts
    fixed: Counts


class Solver(Protocol):
    """What solves such a program."""

    def __call__(self, program: ChoiceProgram, gap: float) -> Counts:
        """The configuration of each job, or NONE; shape (jobs,).

        Args:
            gap: part of the optimum by which the sum may miss it.
        """
        ...


class Highs:
    """HiGHS' branch and bound, as scipy has it."""

    def __call__(self, program: ChoiceProgram, gap: float) -> Counts:
        """As `Solver.__call__`.

        Raises:
            ValueError: scipy is not installed, or the program has no solution.
        """
        optimize, sparse = scipy_parts()
        chosen = program.fixed.copy()
        left = program.capacity - np.bincount(
            program.kinds[chosen[chosen >= 0]], program.devices[chosen[chosen >= 0]], len(program.capacity)
        )
        jobs, configurations = np.nonzero(_worth(program))
        if not len(jobs):
            return chosen
        rows = np.concatenate((jobs, len(chosen) + program.kinds[configurations]))
        columns = np.tile(np.arange(len(jobs)), 2)
        values = np.concatenate((np.ones(len(jobs)), program.devices[configurations]))
        matrix = sparse.csc_array((values, (rows, columns)), (len(chosen) + len(left), len(jobs)))
        most = np.concatenate((np.ones(len(chosen)), left))
        found = optimize.milp(
            program.costs[jobs, configurations],
            integrality=np.ones(len(jobs)),
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, -np.inf, most),
            options={"mip_rel_gap": gap},
        )
        if found.x is None:
            raise ValueError(f"the integer program of {len(chosen)} jobs was not solved: {found.message}")
        taken = found.x > 0.5
        chosen[jobs[taken]] = configurations[taken]
        return chosen


def _worth(program: ChoiceProgram) -> Flags:
    """Which choices are better than none, for jobs that may choose."""
    better: Flags = (program.costs < 0) & (program.fixed == NONE)[:, np.newaxis]
    return better


def scipy_parts() -> tuple[Any, Any]:
    try:
        from scipy import optimize, sparse
    except ImportError:
        raise ValueError(
            "this policy solves an integer program with scipy, which is missing; pip install 'fleet-hpc[programs]'"
        ) from None
    return optimize, sparse
