"""What the coordinator drives: the machine, live or simulated. Both speak in these commands and events."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fleet.coordination.job_checkpoints import Standing
from fleet.coordination.protocol import AtStep, CheckpointWritten, EpochEnded, Formed, Start, StepsTimed
from fleet.journal.work_note import Death
from fleet.scheduling.model.policy import Allocation

StopReason = Literal["policy", "signal", "epoch", "asked", "ahead"]


@dataclass(frozen=True)
class Started:
    """The executor has sent `job` to its devices, reading from `lane`."""

    job: str
    lane: int
    stream: str
    moved: bool = False  # in place: from the memory of the ranks that trained it before


@dataclass(frozen=True)
class Measured:
    """A job without rates was measured, and its devices are free."""

    job: str
    devices: tuple[int, ...]
    rate: float  # samples/s
    batches: int
    seconds: float
    forming: float  # seconds until the group and its job were there


@dataclass(frozen=True)
class GroupEnded:
    """All members have left: the devices are free."""

    job: str
    devices: tuple[int, ...]
    why: Literal["done", "stopped", "failed", "lost"]  # lost: with a rank; it goes on from its last checkpoint
    reason: str
    epoch: int
    step: int
    error: str = ""
    traceback: str = ""
    waited_data: tuple[float, ...] = ()  # by device, seconds since the last epoch end that was reported
    waited_peers: tuple[float, ...] = ()
    computed: tuple[float, ...] = ()
    cost_ranks: bool = False  # of failed: its code ends the processes that train it


@dataclass(frozen=True)
class RanksGone:
    """Ranks are lost, and trainers' devices with them; the groups there end with a GroupEnded.

    With a preprocessor the samples of all that run are gone: all groups leave before another one can start.
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
    """Carries allocations out. Live: MPI messages to real ranks. Simulated: a heap of predicted events."""

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        """Form the groups of one allocation; with `share`, jobs at the same place of the same stream share its
        samples.
        """

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        """Find out how fast a job trains there, which nobody holds: a `Measured` comes, or a GroupEnded if it fails."""

    def stop(self, job: str, why: StopReason) -> None:
        """Ask a job's group to leave its devices at its next step boundary; why "epoch": at the end of its epoch.

        One that trained ahead of need is saved, and so is one that somebody stops.
        A job that a policy stops may stay in its ranks' memory until the next `start`, which moves it to its new
        devices or has its checkpoint written.
        """

    def save_held(self) -> bool:
        """Have checkpoints written of jobs that are in memory alone; return whether there still are such."""

    def next_event(self, timeout: float) -> Event | None:
        """The next thing that happened, waiting at most `timeout` seconds for it."""


class Following(Protocol):
    """An executor that tells devices what comes next."""

    def follow(self, batch: Mapping[str, Start], share: bool) -> bool:
        """Have jobs begin as soon as those that train on their devices, which are the keys, are done.

        False: there is no room.

        What they do comes as events once `start` starts them, the same way.
        """

    def call_off(self, job: str) -> None:
        """Let a job not follow after all; whatever it has done is as if it had not been."""


@dataclass(frozen=True)
class PendingStarts:
    """What a plan starts once its devices are free.

    Attributes:
        devices: job -> those that it gets.
        lanes: who of them reads together.
        batches: who of them has another batch than its own.
        keys: what the journal says of the plan, of the event `Planned`.
    """

    devices: Allocation = field(default_factory=dict)
    lanes: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)


class RunHooks:
    """The run around a coordinator: nothing comes from it, and nothing there has to know anything."""

    def stop_requested(self) -> bool:
        """Whether the run should stop, since a signal or the end of its time asks for it."""
        return False

    def halted(self) -> Collection[str]:
        """Jobs that somebody wants stopped by name."""
        return ()

    def take_in(self) -> None:
        """Add jobs to the books that have come from outside; called now and then."""

    def undecided(self) -> Collection[str]:
        """Jobs with a deadline whose owners wait to hear whether it is promised."""
        return ()

    def decided(self, job: str, promised: bool, why: str) -> None:
        """Tell whether the deadline of such a job is promised; if not, why."""

    def guess(self, job: str) -> float | None:
        """Samples/s on one device of a job that nobody has measured, by what is known of others; None: nobody knows."""
        return None

    def tell_batch(self, job: str) -> None:
        """Tell everybody the batch that a job has by the books, if they know another."""

    def stands(self, job: str) -> Standing:
        """Read where a job stands by its checkpoints; asked when ranks that trained it are lost."""
        return Standing()

    def death(self, devices: tuple[int, ...]) -> Death | None:
        """How the process of a lost rank ended that trained on one of these; None: nobody knows."""
        return None

    def stuck(self) -> str:
        """Where the ranks that do not move stand in their code."""
        return ""

    def waits(self, devices: tuple[int, ...]) -> bool:
        """Whether the ranks of these devices do not move, and only because they wait for samples or other ranks."""
        return False

    def save(self) -> None:
        """Renew what people read of the run; called after each event that changes it."""
