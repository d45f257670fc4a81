"""What the ranks say to each other: small JSON messages, never pickles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from preprocess.samples.errors import SkippedSample
from preprocess.samples.stream import LaneSpec
from preprocess.sharing.messages import MessageCodec
from trainers.state.kept_checkpoints import Best

# One inbox a role, so that the coordinator's rank can be a preprocessor too.
TO_COORDINATOR, TO_PREPROCESSOR, TO_TRAINER, TO_KEEPER = 1, 2, 3, 4


# coordinator -> trainer


@dataclass(frozen=True)
class Start:
    """Train `job` on `devices` from (epoch, step) on, `step` counted inside the epoch.

    Attributes:
        resume: a checkpoint stands at (epoch, step).
        turn_seconds: by device, what the turn of a virtual worker should take there; () where nobody knows.
        lane_group: jobs of another number do not share its samples.
        shares: virtual workers by device; () if they are balanced.
        makers: how many preprocessors fill its lane; 0: all.
        until: epochs after which it leaves, paused; None: it trains until it is done.
        prepared_by: devices without a job whose trainers fill its lane, too.
    """

    job: str
    devices: tuple[int, ...]
    epoch: int
    step: int
    resume: bool
    turn_seconds: tuple[float, ...]
    lane_group: int = 0
    shares: tuple[int, ...] = ()
    makers: int = 0
    until: int | None = None
    prepared_by: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StartGroup(Start):
    """Form a group and begin, reading samples from `lane`.

    Attributes:
        members: ranks of the devices, the master first.
        tag: unlike any earlier group's.
        moved: the members hold the job already, see `MoveGroup`.
        after: the job that its only member trains until then; it does not begin unless that one is done.
    """

    members: tuple[int, ...]
    tag: int
    round: int
    lane: LaneSpec
    moved: bool = False
    after: str = ""


@dataclass(frozen=True)
class MoveGroup:
    """To all of `old`, who hold a job in memory, and of `new`, who are about to train it: move it there."""

    job: str
    old: tuple[int, ...]  # ranks, the master first
    new: tuple[int, ...]
    tag: int  # the next three are as fresh
    old_shares: tuple[int, ...] = ()  # virtual workers of each, () if they are balanced
    new_shares: tuple[int, ...] = ()


@dataclass(frozen=True)
class SaveJob:
    """To those who hold a job in memory: write its checkpoint and forget it."""

    job: str


@dataclass(frozen=True)
class ProfileGroup:
    """Form a group and time `batches` steps of `job`, the last `timed` of them."""

    job: str
    members: tuple[int, ...]
    tag: int
    batches: int
    timed: int
    budget_seconds: float
    batch_size: int = 0  # of a virtual worker; 0: the job's own


@dataclass(frozen=True)
class FindLargest:
    """To a trainer: find the largest batch of a virtual worker with which it can train all of `job`, up to `most`."""

    job: str
    most: int
    budget_seconds: float


@dataclass(frozen=True)
class KeepBusy:
    """To a trainer that nobody measures, while others are on the same accelerator: train `job` alone, until another
    order comes, so that it is measured as it will train. "": rest.
    """

    job: str = ""
    batch_size: int = 0  # as of ProfileGroup


@dataclass(frozen=True)
class StopGroup:
    """To a group's master: leave the devices at the next step boundary, or at the end of the epoch.

    A job stays in memory that may go on at once, as a policy moves it or its batch changes; else its checkpoint is
    written, but for one that was told to follow another and is called off.
    """

    job: str
    why: Literal["policy", "signal", "epoch", "asked", "ahead", "called off"]


@dataclass(frozen=True)
class AddJob:
    """To trainers: the run has one job more. job: all its keys, as a spec's job has them."""

    job: dict[str, Any]


@dataclass(frozen=True)
class SetBatch:
    """To trainers: each virtual worker of a job has so many samples in a step."""

    job: str
    batch_size: int
    epoch: int | None = None  # from that one on, until the next change; None: always
    parts: int = 1  # into which the batch is cut, so that it fits


@dataclass(frozen=True)
class Pulse:
    """To trainers, now and then: rank 0 still lives."""


@dataclass(frozen=True)
class MakeRing:
    """To everyone: allocate the node's ring, together with the node's other ranks."""

    lanes: int
    lane_bytes: int
    slot_samples: int
    writers: int  # preprocessors, then trainers that prepare at the same time; a lane says which of them fill it
    makers: int = 0  # most of them that fill one lane; 0: all


@dataclass(frozen=True)
class Shutdown:
    """To everyone: the run is over; `code` is the exit code."""

    code: int


# coordinator -> preprocessor


@dataclass(frozen=True)
class OpenLane:
    """To the keepers of the nodes' rings, who open the lane there, and to preprocessors, who fill it."""

    lane: LaneSpec


@dataclass(frozen=True)
class PrepareLane:
    """To a trainer that has no network: fill the lane as the preprocessor of this number, until a `CloseLane` comes.

    Both come into the trainer's own inbox, so before any order to train: two inboxes have no order between them.
    """

    writer: int
    lane: LaneSpec


@dataclass(frozen=True)
class CloseLane:
    """To all who were told to open or fill it: all readers have left."""

    lane: int


@dataclass(frozen=True)
class StreamAwaited:
    """To preprocessors: which epochs of a stream have yet to be read; finished samples of others are not kept."""

    data: str
    seed: int
    waiting: int | None  # the first of those that networks without a lane have yet to read; None: none have
    reading: dict[int, int]  # the same for the readers of each open lane


@dataclass(frozen=True)
class DismissReader:
    """To a node's keeper: a reader, by its rank in the node's communicator, is lost; do not wait for it."""

    reader: int


@dataclass(frozen=True)
class DismissWriter:
    """To a node's keeper: a preprocessor, by its number, is lost; readers that wait for its samples shall give up."""

    writer: int


@dataclass(frozen=True)
class ReplaceWriter:
    """To a node's keeper, and to the preprocessor there that makes a lost one's samples from now on, beside its own.

    Nobody reads what the lost one was to fill: the lanes that open after this are the new one's.
    """

    writer: int


@dataclass(frozen=True)
class ReadEnergy:
    """To a node's keeper: have the host's counters of energy read, and tell."""


@dataclass(frozen=True)
class SkipSamples:
    """Take these samples of `data` as corrupt, as an earlier session of the run found them."""

    data: str
    train: tuple[int, ...]
    held_out: tuple[int, ...]


@dataclass(frozen=True)
class MeasureThroughput:
    """Make samples of `data` for `seconds` and say how many a second came out."""

    data: str
    seconds: float


# everyone -> coordinator


@dataclass(frozen=True)
class StopRequested:
    """From any rank: it got a signal."""

    rank: int


@dataclass(frozen=True)
class SampleRate:
    """From a preprocessor: samples/s that it makes of a data set once what there is room for is kept, and before."""

    rank: int
    samples_per_second: float
    while_new: float


@dataclass(frozen=True)
class SampleSkipped:
    """From a preprocessor: a sample could not be made, and another was taken in its place."""

    rank: int
    sample: SkippedSample


@dataclass(frozen=True)
class SampleTorn:
    """From a preprocessor, which makes no more: a sample cannot be made."""

    rank: int
    data: str
    text: str  # which sample, why, and the mend
    lines: str  # of code that raised


@dataclass(frozen=True)
class SamplesMade:
    """From who fills lanes, after each `CloseLane`: what it has laid into lanes so far, by data set."""

    rank: int
    laid: dict[str, int]
    made: dict[str, int]  # read from the data and prepared for that; the others were kept from before


@dataclass(frozen=True)
class EnergyRead:
    """From a node's lowest rank: what the host's counters of energy have counted since they were read before."""

    rank: int
    host: str
    seconds: float  # since then
    devices: tuple[tuple[int, ...], ...]  # by counter: those whose energy it counts
    joules: tuple[float, ...]  # by counter
    sources: tuple[str, ...]  # of the counters that can be read; none: do not ask again
    gone: tuple[str, ...] = ()  # of those that cannot be read any more, told once


@dataclass(frozen=True)
class Formed:
    """From a master: the group stands and trains; `seconds` is what forming and restoring took."""

    job: str
    seconds: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepsTimed:
    """From a master, once: how fast its group trains, by its first steps."""

    job: str
    rate: float  # samples/s
    batches: int
    seconds: float


@dataclass(frozen=True)
class AtStep:
    """From a master, about once a second, less often in runs of very many ranks: still alive, at this step."""

    job: str
    epoch: int
    step: int
    steps: int
    rate: float


@dataclass(frozen=True)
class EpochEnded:
    """From a master: one epoch of a job is done and evaluated."""

    job: str
    epoch: int  # finished ones
    step: int  # steps since the job began
    seconds: float
    rate: float  # samples/s while computing and reducing, waits for data left out
    metrics: dict[str, float]
    learning_rate: float
    waited_data: tuple[float, ...]  # by member, seconds
    waited_peers: tuple[float, ...]
    computed: tuple[float, ...]
    deaf: float = 0.0  # longest time, seconds, in which the group did not hear whether it was to stop


@dataclass(frozen=True)
class CheckpointWritten:
    job: str
    epoch: int
    step: int
    path: str
    bytes: int
    seconds: float
    digest: str
    best: Best | None = None  # of which epoch the best checkpoint is that is kept now


@dataclass(frozen=True)
class Profiled:
    """From a master: the rate of `job` on `count` devices."""

    job: str
    count: int
    rate: float
    batches: int
    seconds: float
    forming: float  # seconds until the group and its job were there


@dataclass(frozen=True)
class Fits:
    """From a trainer: so many samples of a virtual worker fit, and why no more."""

    job: str
    batch_size: int
    limit: str
    tries: int
    seconds: float


@dataclass(frozen=True)
class Left:
    """From each member: it left the group and its device is free."""

    job: str
    rank: int
    why: Literal["done", "stopped", "failed", "profiled", "peer", "lost"]  # lost: said by rank 0
    reason: str = ""  # of done: epochs | target | patience; of stopped: as of StopGroup, or pause
    epoch: int = 0
    step: int = 0  # inside the epoch
    error: str = ""
    traceback: str = ""
    fatal: bool = False  # what failed concerns the whole run: a disk that cannot be written
    waited_data: float = 0.0  # seconds since the last epoch end that was reported
    waited_peers: float = 0.0
    computed: float = 0.0
    held: bool = False  # the member still has its part of the job, between two steps


GroupOrder = StartGroup | MoveGroup | SaveJob | ProfileGroup | FindLargest | KeepBusy | StopGroup
TrainerOrder = AddJob | SetBatch | Pulse | PrepareLane | MakeRing | Shutdown
LaneOrder = OpenLane | CloseLane | StreamAwaited | SkipSamples | MeasureThroughput
KeeperOrder = DismissReader | DismissWriter | ReplaceWriter | ReadEnergy
Order = GroupOrder | TrainerOrder | LaneOrder | KeeperOrder
GroupWord = Formed | StepsTimed | AtStep | EpochEnded | CheckpointWritten | Profiled | Fits | Left
RankWord = StopRequested | SampleRate | SampleSkipped | SampleTorn | SamplesMade | EnergyRead
Message = Order | GroupWord | RankWord
MESSAGES: MessageCodec[Message] = MessageCodec(get_args(Message))
