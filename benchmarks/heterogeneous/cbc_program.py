"""Sia's program in CBC (through cylp), with the variables and constraints in the order of the authors' simulator."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from benchmarks.papers.sia import NONE, ChoiceProgram
from fleet.scheduling.model.arrays import Counts, Floats

_WAITING = 1.1  # what a job without devices costs, which the program's costs have lost
_DECIMALS = 2
_PERCENT = 100.0


def available() -> bool:
    """Whether cylp is installed; no part of fleet needs it."""
    return importlib.util.find_spec("cylp") is not None


class Cbc:
    """Branch and cut of COIN-OR, as cvxpy's interface calls it; a `Solver`."""

    def __call__(self, program: ChoiceProgram, gap: float) -> Counts:
        """As `Solver.__call__`."""
        from cylp.cy import CyClpSimplex
        from cylp.py.modeling.CyLPModel import CyLPArray, CyLPModel

        jobs, configurations = program.costs.shape
        alike, matrix, most = _constraints(program)
        model: Any = CyLPModel()
        chosen = model.addVariable("x", jobs * configurations)
        model += alike * chosen == CyLPArray(np.ones(alike.shape[0]))
        model += matrix * chosen <= CyLPArray(most)
        model.objective = _costs(program)
        simplex = CyClpSimplex(model)
        simplex.setInteger(chosen[list(range(jobs * configurations))])
        simplex.logLevel = 0
        solver = simplex.getCbcModel()
        solver.logLevel = 0
        solver.allowablePercentageGap = _PERCENT * gap
        solver.solve()
        taken = np.round(solver.primalVariableSolution["x"]).reshape(configurations, jobs).T
        found: Counts = np.where(taken.sum(axis=1) > 0, taken.argmax(axis=1), NONE)
        return found


def _costs(program: ChoiceProgram) -> Floats:
    """By configuration, then by job; the authors have costs in single precision, whose last digits break ties."""
    whole = np.round(program.costs + _WAITING, _DECIMALS).astype(np.float32).astype(np.float64)
    costs: Floats = (whole - _WAITING).T.ravel()
    return costs


def _constraints(program: ChoiceProgram) -> tuple[Any, Any, Floats]:
    """What jobs have to keep; and the rows that are at most `most`: bounds, devices of each kind, one choice a job."""
    from scipy import sparse

    jobs, configurations = program.costs.shape
    every, kinds = jobs * configurations, len(program.capacity)
    used = np.zeros((kinds, configurations))
    used[program.kinds, np.arange(configurations)] = program.devices
    devices = sparse.csr_matrix(np.kron(used, np.ones((1, jobs))))
    one = sparse.csr_matrix(np.kron(np.ones((1, configurations)), np.eye(jobs)))
    itself = sparse.eye(every, format="csr")
    matrix = sparse.vstack([-itself, itself, devices, -devices, one]).tocsr()
    most = np.concatenate((np.zeros(every), np.ones(every), program.capacity, np.zeros(kinds), np.ones(jobs)))
    kept = np.flatnonzero(program.fixed != NONE)
    places = np.arange(len(kept)), kept + program.fixed[kept] * jobs
    return sparse.csr_matrix((np.ones(len(kept)), places), (len(kept), every)), matrix, most
