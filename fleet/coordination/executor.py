"""What the coordinator drives and asks: the executor, with commands and events, and the hooks of the run around it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fleet.coordination.job_record import Standing
from fleet.coordination.protocol import AtStep, CheckpointWritten, EpochEnded, Formed, Start, StepsTimed
from fleet.journal.work_note import Death
from fleet.scheduling.model.policy import Allocation

StopReason = Literal["policy", "signal", "epoch", "asked", "ahead"]


@dataclass(frozen=True)
class Started:
    """The executor has sent `job` to its devices, reading from `lane`.

    Attributes:
        moved: its state goes there from the memory of the ranks that trained it before.
    """

    job: str
    lane: int
    stream: str
    moved: bool = False


@dataclass(frozen=True)
class Measured:
    """A job without rates was measured, and its devices are free.

    Attributes:
        rate: samples/s.
        forming: seconds until the group and its job were there.
    """

    job: str
    devices: tuple[int, ...]
    rate: float
    batches: int
    seconds: float
    forming: float


@dataclass(frozen=True)
class GroupEnded:
    """All members have left: the devices are free.

    Attributes:
        why: lost: with a rank; the job goes on from its last checkpoint.
        reason: of done: epochs, target or patience; of stopped: a `StopReason`, or pause.
        waited_data, waited_peers, computed: by device, seconds since the last epoch end that was reported.
        cost_ranks: of failed: the job's code ends the processes that train it.
    """

    job: str
    devices: tuple[int, ...]
    why: Literal["done", "stopped", "failed", "lost"]
    reason: str
    epoch: int
    step: int
    error: str = ""
    traceback: str = ""
    waited_data: tuple[float, ...] = ()
    waited_peers: tuple[float, ...] = ()
    computed: tuple[float, ...] = ()
    cost_ranks: bool = False


@dataclass(frozen=True)
class RanksGone:
    """Ranks are lost, and trainers' devices with them; each group there ends with a `GroupEnded`.

    Attributes:
        all_leave: a preprocessor is lost, and with it samples of all who train: all groups leave before another starts.
    """

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    devices: tuple[int, ...]
    all_leave: bool = False


@dataclass(frozen=True)
class SetBack:
    """A job that waited in memory alone was lost there: it goes on from its last checkpoint."""

    job: str


Event = Measured | Formed | StepsTimed | AtStep | EpochEnded | CheckpointWritten | GroupEnded | RanksGone | SetBack


class Executor(Protocol):
    """Carries allocations out: by MPI messages to ranks, or as a test plays them."""

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        """Form the groups of one allocation; with `share`, jobs at the same place of the same stream share its
        samples.
        """

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        """Measure a job on free devices: a `Measured` follows, or a `GroupEnded` if it fails."""

    def stop(self, job: str, why: StopReason) -> None:
        """Ask a job's group to leave its devices at its next step boundary; why "epoch": at the end of its epoch.

        A job that a policy stops may stay in its ranks' memory until the next `start`, which moves it to its new
        devices or has its checkpoint written. Any other job is saved.
        """

    def save_held(self) -> bool:
        """Have checkpoints written of jobs that are in memory alone; return whether there still are any."""

    def next_event(self, timeout: float) -> Event | None:
        """Return the next event, after at most `timeout` seconds; None: nothing has happened."""


class Following(Protocol):
    """An executor that sends jobs to devices where others still train."""

    def follow(self, batch: Mapping[str, Start], share: bool) -> bool:
        """Have jobs begin as soon as those that train on their devices, which are the keys, are done.

        Their events come once `start` starts them with the same devices.

        Returns:
            Whether there is room for that.
        """

    def call_off(self, job: str) -> None:
        """Let a job not follow after all, and forget what it has done."""


@dataclass(frozen=True)
class PendingStarts:
    """What a plan starts once its devices are free.

    Attributes:
        devices: job -> the devices that it gets.
        lanes: job -> number of its lane group.
        batches: job -> samples of a step, where these change.
        keys: fields of the event `Planned` that say how the plan was made.
    """

    devices: Allocation = field(default_factory=dict)
    lanes: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)


class RunHooks:
    """What a coordinator asks of the run around it, and tells it. These hooks do nothing."""

    def stop_requested(self) -> bool:
        """Return whether the run should stop: a signal, or the end of its time, asks for it."""
        return False

    def halted(self) -> Collection[str]:
        """Return the jobs that somebody wants stopped by name."""
        return ()

    def take_in(self) -> None:
        """Add jobs that were offered to the run; called now and then."""

    def undecided(self) -> Collection[str]:
        """Return the jobs with a deadline whose owners wait to hear whether it is promised."""
        return ()

    def decided(self, job: str, promised: bool, why: str) -> None:
        """Tell the owner whether the deadline of such a job is promised; if not, why."""

    def guess(self, job: str) -> float | None:
        """Return the samples/s on one device to expect of a job that was not measured; None: nobody knows."""
        return None

    def tell_batch(self, job: str) -> None:
        """Tell all ranks a job's batch, if they know another."""

    def stands(self, job: str) -> Standing:
        """Return where a job stands by its checkpoints; asked when ranks that trained it are lost."""
        return Standing()

    def death(self, devices: tuple[int, ...]) -> Death | None:
        """Return how the process of a lost rank ended that trained on one of these devices; None: nobody knows."""
        return None

    def stuck(self) -> str:
        """Return where the ranks that do not move stand in their code."""
        return ""

    def waits(self, devices: tuple[int, ...]) -> bool:
        """Return whether the ranks of these devices stand still only because they wait for samples or other ranks."""
        return False

    def save(self) -> None:
        """Renew the files that people read; called after each event that changes them."""
