"""Training of one job, on any number of trainers, with the bits of plain DDP.

A `Task` says what to train; a `Group` is the trainers that train it now; a `Trainer` is one member's part; a
`Checkpoint` is the job between two steps; `converged` says when it is done; `trainers.zoo` holds networks.
"""

from trainers.job.resize import Move, joining, resize
from trainers.job.trainer import Trainer
from trainers.messages.group import Group, blocks_of
from trainers.messages.transport import PeerFailed, PeerSilent
from trainers.reduce.buckets import UnevenGradients
from trainers.repeatable.determinism import (
    Arithmetic,
    ConsistencyWarning,
    Float32,
    Level,
    PinsDiffer,
    check_group,
    level_of,
    pin,
    pins,
)
from trainers.repeatable.instruction_sets import InstructionSetError, PinsTooLate
from trainers.repeatable.scan import Scan, scan
from trainers.repeatable.shared_state import UntoldState
from trainers.state.checkpoint import (
    Checkpoint,
    CheckpointError,
    Saved,
    file_name,
    latest_good,
    newest_file,
    prune,
    read,
    write,
)
from trainers.state.history import Stop, converged
from trainers.step.compute import Compute, ForwardBackward, Training
from trainers.step.losses import Diverged
from trainers.step.virtual_worker import VirtualWorker
from trainers.task.batch_plan import BatchPlan
from trainers.task.task import Batch, Sums, Task

__all__ = [
    "Arithmetic",
    "Batch",
    "BatchPlan",
    "Checkpoint",
    "CheckpointError",
    "Compute",
    "ConsistencyWarning",
    "Diverged",
    "ForwardBackward",
    "Group",
    "InstructionSetError",
    "Level",
    "Move",
    "PeerFailed",
    "PeerSilent",
    "PinsDiffer",
    "PinsTooLate",
    "Float32",
    "Saved",
    "Scan",
    "Stop",
    "Sums",
    "Task",
    "Trainer",
    "Training",
    "UnevenGradients",
    "UntoldState",
    "VirtualWorker",
    "blocks_of",
    "check_group",
    "converged",
    "file_name",
    "joining",
    "latest_good",
    "level_of",
    "newest_file",
    "pin",
    "pins",
    "prune",
    "read",
    "resize",
    "scan",
    "write",
]
