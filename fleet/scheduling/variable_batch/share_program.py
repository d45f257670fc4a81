"""The linear program that gives each job a share of the time on each kind of device (Gavel, OSDI'20, 3.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats

_STEPS = 100  # of Newton's method, at most
_TOLERANCE = 1e-9  # of the gap, and of how far constraints are missed
_RIDGE = 1e-14  # of the diagonal: near the optimum rows may be alike but for rounding
_SHORTER = 0.99  # of the way to the nearest bound


class ShareProgram(NamedTuple):
    """Maximise the sum of shares x rates.

    Attributes:
        rates: of each job on each kind; shape (jobs, kinds).
        devices: of each job; shape (jobs,).
        capacity: devices of each kind; shape (kinds,).
    """

    rates: Floats
    devices: Counts
    capacity: Counts

    def same(self, other: ShareProgram) -> bool:
        """Whether both ask for the same."""
        return all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(self, other))


def best_shares(program: ShareProgram) -> Floats:
    """The shares of each job on each kind, between 0 and 1; shape (jobs, kinds).

    Of several optima it is the one in their middle, where an interior-point method ends: jobs that are alike get alike
    shares, and those that get next to nothing are told apart by how little they would miss.
    """
    jobs, kinds = program.rates.shape
    variables = np.arange(jobs * kinds)
    matrix = np.zeros((jobs + kinds, jobs * kinds + jobs + kinds))
    matrix[variables // kinds, variables] = 1.0
    matrix[jobs + variables % kinds, variables] = np.repeat(program.devices, kinds)
    matrix[np.arange(jobs + kinds), jobs * kinds + np.arange(jobs + kinds)] = 1.0
    most = np.concatenate((np.ones(jobs), program.capacity)).astype(np.float64)
    scale = float(program.rates.max()) or 1.0
    costs = np.concatenate((-program.rates.ravel() / scale, np.zeros(jobs + kinds)))
    shares: Floats = np.clip(_interior(matrix, most, costs)[: jobs * kinds].reshape(jobs, kinds), 0.0, 1.0)
    return shares


def _interior(matrix: Floats, most: Floats, costs: Floats) -> Floats:
    """The x >= 0 with matrix x = most for which costs x is least (Mehrotra's predictor and corrector)."""
    x, y, z = np.ones(matrix.shape[1]), np.zeros(len(most)), np.ones(matrix.shape[1])
    for _ in range(_STEPS):
        missed, priced, gap = most - matrix @ x, costs - matrix.T @ y - z, float(x @ z) / len(x)
        if gap < _TOLERANCE and max(np.abs(missed).max(), np.abs(priced).max()) < _TOLERANCE:
            break
        weights = x / z
        normal = (matrix * weights) @ matrix.T
        normal[np.diag_indices_from(normal)] += _RIDGE * normal.diagonal() + _RIDGE

        def direction(target: Floats) -> tuple[Floats, Floats, Floats]:
            right = missed + matrix @ (weights * priced - target / z)  # noqa: B023
            dy = np.linalg.solve(normal, right)  # noqa: B023
            dz = priced - matrix.T @ dy  # noqa: B023
            return (target - x * dz) / z, dy, dz  # noqa: B023

        dx, _dy, dz = direction(-x * z)
        ahead = float((x + _reach(x, dx) * dx) @ (z + _reach(z, dz) * dz)) / len(x)
        dx, dy, dz = direction((ahead / gap) ** 3 * gap - x * z - dx * dz)
        first, second = _SHORTER * _reach(x, dx), _SHORTER * _reach(z, dz)
        x, y, z = x + first * dx, y + second * dy, z + second * dz
    return x


def _reach(values: Floats, steps: Floats) -> float:
    """The part of the steps, at most all, after which no value is below 0."""
    falling = steps < 0
    with np.errstate(over="ignore"):  # a step next to nothing may be made any number of times
        return min(1.0, float((-values[falling] / steps[falling]).min())) if falling.any() else 1.0
