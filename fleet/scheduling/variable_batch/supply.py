"""What configurations take of devices and of the data path, and how much there is of these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats

_FED = 0.5
"""Part of the samples that a job asks for that have to be there, for it to begin beside others."""


@dataclass(frozen=True)
class Supply:
    """Devices of each kind and, where it is scarce, the time of all preprocessors together.

    That time is counted in devices, as many as there are, so that it is as dear as they where both are short. Other
    than devices it can be divided: where jobs ask for more of it than there is, each trains more slowly.

    Attributes:
        usage: devices of each kind that a configuration takes; shape (configurations, kinds).
        capacity: of each kind and, behind these, of the data path, if it counts; shape (resources,).
        path: what each job takes of the data path; shape (jobs, configurations). None: it feeds all that can train.
    """

    usage: Floats
    capacity: Floats
    path: Floats | None = None

    @classmethod
    def of(cls, devices: Counts, kinds: Counts, capacity: Counts, fed: Floats | None) -> Supply:
        """The devices that there are, and the data path.

        Args:
            devices: of each configuration; shape (configurations,).
            kinds: the number of each configuration's kind; shape (configurations,).
            capacity: devices of each kind; shape (kinds,).
            fed: the part of all preprocessors' time that each job takes; shape (jobs, configurations). None: none.
        """
        usage = np.zeros((len(devices), len(capacity)))
        usage[np.arange(len(devices)), kinds] = devices
        if fed is None:
            return cls(usage, capacity.astype(np.float64))
        total = float(capacity.sum())
        return cls(usage, np.append(capacity, total), fed * total)

    def cost(self, prices: Floats) -> Floats:
        """Of each configuration at prices of the resources; shape (configurations,), or (jobs, configurations)."""
        if self.path is None:
            return self.usage @ prices
        return self.usage @ prices[:-1] + self.path * prices[-1]

    def sizes(self) -> Floats:
        """All that each configuration takes; shapes as those of `cost`."""
        devices: Floats = self.usage.sum(axis=1)
        return devices if self.path is None else devices + self.path

    def taken(self, chosen: Counts) -> Floats:
        """What each job takes with its configuration, or with none where that is below 0; shape (jobs, resources)."""
        return self._padded(np.where((chosen >= 0)[:, np.newaxis], self.usage[chosen], 0.0), chosen)

    def _padded(self, devices: Floats, chosen: Counts) -> Floats:
        if self.path is None:
            return devices
        path = np.where(chosen >= 0, self.path[np.arange(len(chosen)), chosen], 0.0)
        return np.column_stack((devices, path))

    def is_there(self, more: Floats, free: Floats) -> bool:
        """Whether a job may take so much more of each resource; both of shape (resources,)."""
        if self.path is None:
            return bool((more <= free).all())
        return bool((more[:-1] <= free[:-1]).all() and (more[-1] <= 0 or _FED * more[-1] <= free[-1]))

    def fitting(self, held: Floats, free: Floats) -> Flags:
        """Which configurations each job could have, with what is free and what it has; shape (jobs, configurations)."""
        fits: Flags = np.ones((len(held), len(self.usage)), dtype=np.bool_)
        for kind in range(self.usage.shape[1]):
            fits &= self.usage[:, kind] <= (held[:, kind] + free[kind])[:, np.newaxis]
        if self.path is not None:
            more = self.path - held[:, -1:]
            fits &= (more <= 0) | (_FED * more <= free[-1])
        return fits

    def unfed(self, chosen: Counts, worth: Floats) -> float:
        """The worth of what cannot be fed of the chosen configurations, if that is where it is worth least."""
        if self.path is None:
            return 0.0
        jobs = np.flatnonzero(chosen >= 0)
        asked = self.path[jobs, chosen[jobs]]
        over = asked.sum() - self.capacity[-1]
        if over <= 0:
            return 0.0
        jobs, asked = jobs[asked > 0], asked[asked > 0]
        each = worth[jobs, chosen[jobs]] / asked
        order = np.argsort(each, kind="stable")
        lost = np.diff(np.minimum(np.cumsum(asked[order]), over), prepend=0.0)
        return float(lost @ each[order])
