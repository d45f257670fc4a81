"""A machine on which a job's pace depends on its devices and its batch (Saxena et al., 2020, III-E)."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.simulated.published_profiles import BatchProfile
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs, arrived, unknown
from fleet.simulator.traces.trace import TraceJob


class ProfiledMachine:
    """Jobs of known profiles, each at T_j(b, k), wherever its devices are.

    The rate curve of a job is that of its best batches. Its gang are the devices on which its own batch just fits.

    Args:
        cluster: nodes and devices.
        profiles: by model.
        costs: what moves cost; None: nothing, as in the paper's simulator.
    """

    def __init__(self, cluster: Cluster, profiles: Mapping[str, BatchProfile], costs: Costs | None = None) -> None:
        self._cluster, self._profiles = cluster, dict(profiles)
        self._costs = costs or Costs()
        self._curves: dict[str, RateCurve] = {}

    @property
    def cluster(self) -> Cluster:
        """As `Machine.cluster`."""
        return self._cluster

    def arriving(self, job: TraceJob) -> JobState:
        """As `Machine.arriving`.

        Raises:
            UnknownRate: there is no profile of its model.
            ValueError: its batch is outside the range of its model, or the trace does not say how much it trains.
        """
        if job.model not in self._profiles:
            raise unknown("model", job.model, self._profiles)
        profile = self._profiles[job.model]
        least, most = profile.batches
        batch = least if job.batch_size is None else job.batch_size
        if not least <= batch <= most:
            raise ValueError(f"job {job.name}: its batch is {batch}; one of {job.model} is {least} to {most} samples")
        if job.samples is None:
            raise ValueError(f"job {job.name}: the trace does not say its samples, without which its length is unknown")
        gang = -(-batch // profile.scaling.fits)
        limit = min(self._cluster.size, job.limit or profile.limit, profile.scaling.limit)
        curve, scaling, batches = self._curve(job.model), profile.scaling, profile.batches
        return arrived(
            job, curve, limit, job.samples, self._costs, gang=gang, batch=batch, batches=batches, scaling=scaling
        )

    def pace(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.pace`.

        Raises:
            ValueError: its batch does not fit on so few devices, or is too small for so many.
        """
        rate = job.scaling.rate(len(devices), job.batch) if job.scaling else job.rate(len(devices))
        if not rate > 0:
            raise ValueError(
                f"job {job.name} cannot train a batch of {job.batch} on {len(devices)} devices: "
                f"it needs {job.gang} at least; let a policy choose its batch, or give it its gang"
            )
        return rate

    def delay(self, job: JobState, devices: tuple[int, ...]) -> float:
        """As `Machine.delay`."""
        return self._costs.delay(job)

    def _curve(self, model: str) -> RateCurve:
        if model not in self._curves:
            profile = self._profiles[model]
            scaling = profile.scaling
            factors = scaling.best(*profile.batches, scaling.limit).factors
            rates = {count: float(factor * scaling.single) for count, factor in enumerate(factors, 1) if factor > 0}
            self._curves[model] = RateCurve(rates, max(self._cluster.devices_per_node), limit=scaling.limit)
        return self._curves[model]
