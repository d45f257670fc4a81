"""How many ranks a node gets, with how many cores; and for how long."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.machine.submit.site import Site, SiteError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"(\d+)([smhd])$|(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?$")
_ASSUMED_CORES = 8
"""Cores of a rank, where it is not known how many a node has."""


@dataclass(frozen=True)
class WallTime:
    """The length of an allocation, seconds."""

    seconds: int

    @classmethod
    def parse(cls, text: str) -> WallTime:
        """From HH:MM:SS, HH:MM, D-HH:MM, or a number with s, m, h or d.

        Raises:
            SiteError: it is none of these, or not above 0.
        """
        match = _TIME.match(text)
        if match is None:
            raise SiteError(
                f"--time {text}: write hours:minutes:seconds, or a number with s, m, h or d, such as 04:00:00 or 90m"
            )
        count, unit, days, hours, minutes, seconds = match.groups()
        if count:
            total = int(count) * _UNITS[unit]
        else:
            total = int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)
        if total < 1:
            raise SiteError(f"--time {text}: it must be above 0")
        return cls(total)

    @property
    def clock(self) -> str:
        """HH:MM:SS."""
        return f"{self.seconds // 3600:02d}:{self.seconds // 60 % 60:02d}:{self.seconds % 60:02d}"

    @property
    def hours_minutes(self) -> str:
        """H:MM, rounded up."""
        minutes = -(-self.seconds // 60)
        return f"{minutes // 60}:{minutes % 60:02d}"


@dataclass(frozen=True)
class NodeShape:
    """The ranks of each node: as many trainers as fit its GPUs, or as were asked for, and those that make samples."""

    nodes: int
    gpus: int
    trainers: int
    preprocessors: int
    cores: int

    @classmethod
    def of(
        cls, site: Site, nodes: int, gpus: int | None, trainers: int | None, preprocessors: int, cores: int | None,
        members: int = 1,
    ) -> NodeShape:  # fmt: skip
        """What was asked for, and for the rest what the site has. cores: of a rank. members: trainers of a GPU.

        Raises:
            SiteError: a node that cannot carry it.
        """
        gpus = site.gpus if gpus is None else gpus
        if gpus is None:
            raise SiteError("--gpus-per-node: say how many GPUs a node of this site has; 0 trains on CPUs")
        _at_least("--nodes", nodes, 1)
        _at_least("--gpus-per-node", gpus, 0)
        _at_least("--preprocessors-per-node", preprocessors, 0)
        if site.gpus is not None and gpus > site.gpus:
            raise SiteError(
                f"--gpus-per-node {gpus}: a node of this site has {site.gpus} ({site.title}); give at most that"
            )
        if trainers is None:
            trainers = gpus * members or 1
        _at_least("--trainers-per-node", trainers, 1)
        if gpus and trainers > gpus * members:
            raise SiteError(
                f"--trainers-per-node {trainers}: there are {gpus} GPUs, and resources.members_per_device is "
                f"{members}; give {gpus * members}"
            )
        ranks = trainers + preprocessors
        if nodes * preprocessors < 1:
            raise SiteError("--preprocessors-per-node 0: somebody must prepare samples; give 1 or more")
        if cores is None:
            cores = site.cores // ranks if site.cores is not None else _ASSUMED_CORES
        _at_least("--cores-per-rank", cores, 1)
        if site.cores is not None and cores * ranks > site.cores:
            raise SiteError(
                f"{ranks} ranks a node of {cores} cores each are {cores * ranks} cores, and a node of this site has "
                f"{site.cores}; give --cores-per-rank {max(1, site.cores // ranks)}, or fewer ranks"
            )
        return cls(nodes, gpus, trainers, preprocessors, cores)

    @property
    def ranks_per_node(self) -> int:
        return self.trainers + self.preprocessors


def _at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise SiteError(f"{option} {value}: give at least {least}")
