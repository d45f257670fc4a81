"""How far jobs have come with the devices that they are promised for a window of time.

EasyScale tells of quotas and of service level agreements of production jobs (Li et al., SC'23, 2.1 and 5.3) and prints
no rule for them. This one is that of tasks whose laxity decides once it is 0 (EDZL: Lee, TENCON'94): jobs with windows
of one length have common ends, and whoever would be late if it waited any longer goes first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleet.scheduling.model.jobs import TOLERANCE, JobState, ServiceLevel, ServiceWindow
from fleet.scheduling.model.policy import State

_ROUNDING = 1e-6  # of a window, and of what is promised for it


@dataclass(frozen=True)
class OpenWindow:
    """The window of a job that goes on.

    Attributes:
        begin, end: seconds since the run began.
        attained: the job's device-seconds at its begin.
        broken: whether it was told that the promise cannot be kept any more.
    """

    begin: float
    end: float
    attained: float
    broken: bool = False

    @classmethod
    def first(cls, now: float, level: ServiceLevel, attained: float) -> OpenWindow:
        """The window in which a job is seen first: it ends with those of others, and is half of theirs at least."""
        end = (math.floor(now / level.window) + 1) * level.window
        return cls(now, end if end - now >= level.window / 2 else end + level.window, attained)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin


class ServiceWindows:
    """The windows of a state's jobs while a plan is made.

    A job that lacks n device-seconds of its window, of which L seconds are left, needs n / L devices, rounded up, until
    the window ends. A shortage within the tolerance makes no further device necessary. On m devices, the most that it
    can have, it has L - n / m seconds in which it can do without any: its laxity.

    Args:
        state: the state of the run.
        before: job -> its window, as the plan before left it.

    Attributes:
        over: what became of promises since the plan before, each told once.
    """

    def __init__(self, state: State, before: Mapping[str, OpenWindow]) -> None:
        self._now, self._by_name, self._before = state.time, state.by_name, before
        self.over: list[ServiceWindow] = []
        self._of: dict[str, OpenWindow] = {}
        for job in state.by_name.values():
            if job.service_level is not None and not job.guaranteed:
                self._of[job.name] = self._followed(job, job.service_level, before.get(job.name))

    @property
    def jobs(self) -> list[JobState]:
        """The jobs that are promised something, the more important first, then as they came."""
        known = map(self._by_name.__getitem__, self._of)
        return sorted(known, key=lambda job: (-job.priority, job.arrival, job.name))

    @property
    def changed(self) -> dict[str, OpenWindow]:
        """Job -> its window, where that is another than before."""
        return {name: window for name, window in self._of.items() if window != self._before.get(name)}

    def due(self, name: str) -> int:
        """The fewest devices that a job needs from now to the end of its window; 0: it has had what was promised."""
        if name not in self._of:
            return 0
        promised, lacks = self._promised(name), self._lacks(name)
        if lacks <= _ROUNDING * promised:
            return 0
        return max(1, math.ceil((lacks - TOLERANCE * promised) / (self._of[name].end - self._now) - _ROUNDING))

    def laxity(self, name: str, most: int) -> float:
        """Seconds that a job can wait, if it then has so many devices; 0: none."""
        laxity = self._of[name].end - self._now - self._lacks(name) / most
        return laxity if laxity > _ROUNDING * self._of[name].seconds else 0.0

    def settle(self, most: Mapping[str, int]) -> None:
        """See whose promise cannot be kept any more, whatever is done.

        Args:
            most: devices that each job could ever have.
        """
        for name, window in list(self._of.items()):
            promised, lacks = self._promised(name), self._lacks(name)
            possible = most[name] * (window.end - self._now)
            if not window.broken and lacks - TOLERANCE * promised > possible + _ROUNDING * promised:
                self._of[name] = replace(window, broken=True)
                self._tell(name, window, promised - lacks, broken=True)

    def next_look(self, held: Mapping[str, int], most: Mapping[str, int]) -> float:
        """When a window ends, when a job has had all that it was promised, so that others may have its devices, or when
        one cannot wait any longer.

        Args:
            held: devices of each job from now on.
            most: devices that each job could ever have.
        """
        times = [window.end for window in self._of.values()]
        for name in filter(self.due, self._of):
            lacks, count = self._lacks(name), held.get(name, 0)
            laxity = self.laxity(name, most[name])
            if count:
                times.append(self._now + lacks / count)
            if laxity and count < most[name]:
                times.append(self._now + laxity / (1 - count / most[name]))
        return min(times, default=math.inf)

    def _followed(self, job: JobState, level: ServiceLevel, window: OpenWindow | None) -> OpenWindow:
        """The window in which the job is now; those that are over by now are told."""
        if window is None:
            return OpenWindow.first(self._now, level, job.attained_at(self._now))
        while self._now >= window.end:
            end = window.end
            attained = max(window.attained, job.attained_at(end) if end >= job.since else job.attained)
            if not window.broken:
                had, promised = attained - window.attained, level.devices * window.seconds
                self._tell(job.name, window, had, had < promised * (1 - TOLERANCE - _ROUNDING))
            window = OpenWindow(end, end + level.window, attained)
        return window

    def _tell(self, name: str, window: OpenWindow, had: float, broken: bool) -> None:
        promised = self._level(name).devices * window.seconds
        self.over.append(ServiceWindow(name, window.begin, window.end, promised, had, broken))

    def _level(self, name: str) -> ServiceLevel:
        level = self._by_name[name].service_level
        assert level is not None, "only jobs that are promised something have windows"
        return level

    def _promised(self, name: str) -> float:
        """Device-seconds of its window."""
        return self._level(name).devices * self._of[name].seconds

    def _lacks(self, name: str) -> float:
        """Device-seconds of its window that a job has not had yet; below 0 if it has had more."""
        attained = self._by_name[name].attained_at(self._now)
        return self._promised(name) - (attained - self._of[name].attained)
