"""The prices that a spec gives the kinds of device of a machine."""

from __future__ import annotations

import math

from fleet.machine.cluster_map import ClusterMap
from fleet.scheduling.model.cluster import Course, Prices
from fleet.spec import EnsembleSpec
from fleet.spec.resources import ANY
from fleet.workers.agreement import BadInput


def prices_of(spec: EnsembleSpec, cluster: ClusterMap) -> Prices | None:
    """The prices of the machine's devices, by the kinds that policies know; None: the spec tells none.

    Raises:
        BadInput: a kind has none, or the worth of a device is told and no price.
    """
    told, worth = spec.resources.prices, spec.policy.worth
    if not told:
        if worth is not None:
            raise BadInput(
                f"policy.worth is {worth:g}, and no device has a price; give resources.prices, or leave it out"
            )
        return None
    courses: dict[str, Course] = {}
    for kind, model in cluster.rated.items():
        found = next((told[name] for name in (kind, model, model.partition(",")[0], ANY) if name in told), None)
        if found is None:
            name = kind or model
            raise BadInput(
                f"resources.prices has no price for {name}; there are prices for {', '.join(told)}: add one for it, "
                f"or for `{ANY}`"
            )
        courses[kind] = found
    return Prices(courses, math.inf if worth is None else worth)
