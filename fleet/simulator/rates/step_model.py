"""How long a step takes, fitted to those that were measured (Pollux, OSDI'21, 3.2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleet.scheduling.model.arrays import Floats

_TOLERANCE = 1e-5
_LEAST = 1e-8  # of a time, so that its logarithm is finite
_OVERLAP = 10.0  # gamma from which the larger of two times is all that counts


class MeasuredSteps(NamedTuple):
    """Steps that were measured; each of shape (measurements,).

    Attributes:
        nodes, devices: on which they ran.
        local: samples of a device.
        compute: seconds without the exchange of gradients.
        seconds: of the whole step.
    """

    nodes: Floats
    devices: Floats
    local: Floats
    compute: Floats
    seconds: Floats


class StepModel(NamedTuple):
    """T = (T_grad^gamma + T_sync^gamma)^(1/gamma), with T_grad = alpha + beta x local batch (Pollux, Eq. 9 to 11).

    T_sync is 0 on one device, alpha + beta (devices - 2) on one node, and so with another alpha and beta on several.
    """

    alpha_grad: float
    beta_grad: float
    alpha_node: float
    beta_node: float
    alpha_local: float
    beta_local: float
    gamma: float

    def compute(self, local: Floats) -> Floats:
        """Seconds in which gradients of so many samples are computed."""
        return self.alpha_grad + self.beta_grad * local

    def sync(self, nodes: Floats, devices: Floats) -> Floats:
        """Seconds in which gradients are exchanged."""
        further = np.maximum(devices - 2, _LEAST)
        alone = np.where(devices > 1, self.alpha_local + self.beta_local * further, _LEAST + _LEAST * further)
        found: Floats = np.where(nodes > 1, self.alpha_node + self.beta_node * further, alone)
        return found

    def seconds(self, nodes: Floats, devices: Floats, local: Floats) -> Floats:
        """Seconds of a step."""
        compute, sync = self.compute(local), self.sync(nodes, devices)
        found: Floats = np.exp(np.log(compute**self.gamma + sync**self.gamma) / self.gamma)
        return found


def fitted(measured: MeasuredSteps) -> StepModel:
    """The model with the least root mean squared logarithmic errors, as Pollux' agents fit it.

    What no measurement can tell keeps the value that makes more devices look best, so that they are tried.
    """
    from scipy.optimize import Bounds, minimize

    start, low, high = _limits(measured)
    found = minimize(
        _loss, start, args=(measured,), jac=True, bounds=Bounds(low, high, keep_feasible=True), tol=_TOLERANCE
    )
    model = StepModel(*map(float, found.x))
    if (measured.nodes > 1).any():
        return model
    return model._replace(
        alpha_node=max(model.alpha_node, model.alpha_local * 1.1),
        beta_node=max(model.beta_node, model.beta_local * 1.1),
    )


def _limits(measured: MeasuredSteps) -> tuple[Floats, Floats, Floats]:
    """Where the search begins, and between which bounds it stays."""
    start = np.array([1e-1, 1e-2] * 3 + [1.0 + 1e-3])
    low, high = np.array([_LEAST] * 6 + [1.0]), np.array([np.inf] * 6 + [_OVERLAP])
    fixed = []
    if len(np.unique(measured.local)) == 1:
        start[0] = low[0] = high[0] = measured.compute.mean() / 2
    if not (measured.nodes > 1).any():
        fixed += [2, 3]
    if not ((measured.nodes == 1) & (measured.devices > 1)).any():
        fixed += [4, 5]
    if not (measured.devices > 2).any():
        fixed += [3, 5]
    start[fixed] = high[fixed] = _LEAST
    return start, low, high


def _loss(x: Floats, measured: MeasuredSteps) -> tuple[float, Floats]:
    """The sum of both errors and of what keeps gamma and the betas small, and its gradient."""
    model = StepModel(*x)
    compute, sync = model.compute(measured.local), model.sync(measured.nodes, measured.devices)
    powers = compute**model.gamma, sync**model.gamma
    whole = powers[0] + powers[1]
    first, on_first = _error(np.log(compute) - np.log(measured.compute))
    second, on_second = _error(np.log(whole) / model.gamma - np.log(measured.seconds))
    by_compute = on_first / compute + on_second * powers[0] / (compute * whole)
    by_sync = on_second * powers[1] / (sync * whole)
    further = np.maximum(measured.devices - 2, _LEAST)
    apart = measured.nodes > 1
    alone = ~apart & (measured.devices > 1)
    logs = (powers[0] * np.log(compute) + powers[1] * np.log(sync)) / (whole * model.gamma)
    steep = [(model.beta_node, model.alpha_node), (model.beta_local, model.alpha_local)]
    gradient = np.array(
        [
            by_compute.sum(),
            (by_compute * measured.local).sum(),
            by_sync[apart].sum() - 2e-2 * steep[0][0] ** 2 / steep[0][1] ** 3,
            (by_sync * further)[apart].sum() + 2e-2 * steep[0][0] / steep[0][1] ** 2,
            by_sync[alone].sum() - 2e-2 * steep[1][0] ** 2 / steep[1][1] ** 3,
            (by_sync * further)[alone].sum() + 2e-2 * steep[1][0] / steep[1][1] ** 2,
            (on_second * (logs - np.log(whole) / model.gamma**2)).sum() + 2e-3 * (model.gamma - 1),
        ]
    )
    loss = first + second + 1e-3 * (model.gamma - 1) ** 2 + 1e-2 * sum((beta / alpha) ** 2 for beta, alpha in steep)
    return float(loss), gradient


def _error(differences: Floats) -> tuple[float, Floats]:
    """The root mean square, and its derivative by each difference."""
    error = float(np.sqrt((differences**2).mean()))
    return error, differences / (len(differences) * error) if error else np.zeros_like(differences)
