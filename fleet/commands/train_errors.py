"""What is said where one job ends by an error: once for all ranks that say alike, with a person's lines of code.

Ranks that fail together have rank 0 tell of it, in waits that are bounded: what held one up may hold all up.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from traceback import FrameSummary
from typing import TYPE_CHECKING

from fleet.commands.train_options import TrainError
from fleet.machine.horovod import HorovodMissing
from fleet.machine.launch.launched import BAD_INPUT, FAILED
from fleet.machine.raised_in import a_persons_lines, lines_of_torch
from fleet.machine.standard_streams import tell
from fleet.spec.references import ReferenceProblem
from trainers import CheckpointError, Diverged, PeerFailed, PeerSilent, PinsDiffer, UnevenGradients, UntoldState
from trainers.proof.ddp import ProcessFailed
from trainers.proof.tensor_trace import TensorTraceError
from trainers.reduce.gradients import GradientTwice, SparseGradient
from trainers.repeatable.instruction_sets import PinsTooLate
from trainers.repeatable.scan import NonDeterministicOperator
from trainers.step.compute import CannotCompile, UnfitLoss
from trainers.task.loss import UnfitTask
from trainers.task.parts import PhaseError

if TYPE_CHECKING:
    from mpi4py import MPI


class NotKept(RuntimeError):
    """A job has trained, and its state could not be written."""


#: What a person can have got wrong; its text says all.
MENDABLE = (
    TrainError,
    ReferenceProblem,
    CheckpointError,
    PinsDiffer,
    PinsTooLate,
    UnfitTask,
    TensorTraceError,
    HorovodMissing,
)
#: What can come of a job that was started well; its text says all.
TOLD = (
    Diverged,
    UnevenGradients,
    PhaseError,
    UnfitLoss,
    UntoldState,
    NonDeterministicOperator,
    CannotCompile,
    SparseGradient,
    GradientTwice,
    PeerFailed,
    PeerSilent,
    NotKept,
)
_AGAIN = "mend that and run the same command again"
_NOT_YOURS = "none of these lines is yours: what your task gives to torch there does not fit"
_OURS = "it was raised in none of your lines; with all of fleet's:"


@dataclass(frozen=True)
class LastWords:
    """What one rank says of the error that ended its part.

    Attributes:
        code: the exit code.
        kind: ranks whose words are of the same kind are told together, with the words of the first.
        text: what went wrong, where and what to do.
        fails: the text is of a job that failed, which is said before it with the ranks.
        echo: another rank has failed, and this one no more than heard of it.
    """

    code: int
    kind: str
    text: str
    fails: bool = False
    echo: bool = False

    @classmethod
    def of(cls, error: BaseException) -> LastWords:
        """The words of a rank that an error has left."""
        if isinstance(error, MENDABLE):
            return cls(BAD_INPUT, str(error), str(error))
        if isinstance(error, TOLD):
            return cls(FAILED, type(error).__name__, str(error), echo=isinstance(error, PeerFailed))
        said = "".join(traceback.format_exception_only(error)).rstrip()
        return cls.of_stack(_said(said, type(error).__name__), traceback.extract_tb(error.__traceback__))

    @classmethod
    def of_stack(cls, said: str, stack: Sequence[FrameSummary]) -> LastWords:
        """The words of an error whose text does not say all: in which lines it was raised. said: its kind and text."""
        if theirs := a_persons_lines(stack):
            where, then = f"it was raised in\n{theirs}", f"\n{_AGAIN}"
        elif torchs := lines_of_torch(stack):
            where, then = f"it was raised in\n{torchs}", f"\n{_NOT_YOURS}; {_AGAIN}"
        else:
            where, then = f"{_OURS}\n{''.join(traceback.format_list(list(stack))).rstrip()}", ""
        kind = f"{said.partition(':')[0]}\n{where}"
        return cls(FAILED, kind, f"{said}\n{where}{then}", fails=True)

    @classmethod
    def of_process(cls, error: ProcessFailed) -> LastWords:
        """The words of a process under stock DDP."""
        if (raised := error.raised) is None:
            return cls(FAILED, str(error), f"{error}; {_AGAIN}")
        for code, kinds in ((BAD_INPUT, MENDABLE), (FAILED, TOLD)):
            if raised.kind in {kind.__name__ for kind in kinds}:
                return cls(code, raised.kind, raised.text)
        return cls.of_stack(_said(raised.said, raised.kind), raised.lines())

    def told(self, where: str) -> str:
        """The words with the ranks that said so; "": there is one alone."""
        if self.fails:
            return f"the job failed{where and f' {where}'}: {self.text}"
        return f"{self.text} ({where})" if where and self.code != BAD_INPUT and not self.echo else self.text


def tell_all(words: Mapping[int, LastWords], ranks: int) -> int:
    """Tell what so many ranks have said, each kind once; return the exit code of all together."""
    own = {rank: said for rank, said in sorted(words.items()) if not said.echo} or dict(words)
    by_kind: dict[str, list[int]] = {}
    for rank, said in own.items():
        by_kind.setdefault(said.kind, []).append(rank)
    for speakers in by_kind.values():
        tell(own[speakers[0]].told(_named(speakers, ranks)))
    return max((said.code for said in own.values()), key=[BAD_INPUT, FAILED].index)


def _said(said: str, kind: str) -> str:
    return f"{said} (its code tried to end the process)" if kind == SystemExit.__name__ else said


def _named(speakers: Sequence[int], ranks: int) -> str:
    if ranks == 1:
        return ""
    if len(speakers) == 1:
        return f"on rank {speakers[0]}"
    *most, last = speakers
    return f"on all {ranks} ranks" if len(speakers) == ranks else f"on ranks {', '.join(map(str, most))} and {last}"


WORDS_SECONDS = 10.0
"""In which rank 0 has the words of all that are not held up."""
ANSWER_SECONDS = 20.0
"""In which rank 0 has told them; it may train yet, and another rank then tells its words itself."""
_WORDS, _ANSWER = 11, 12  # tags that no group has
_POLL_SECONDS = 0.002


def tell_together(world: MPI.Intracomm, own: LastWords) -> int:
    """Tell why this rank ends, or have rank 0 tell it; return the exit code. Every rank that fails calls this."""
    from mpi4py import MPI

    try:
        return _lead(world, own) if world.rank == 0 else _follow(world, own)
    except MPI.Exception:  # a rank was lost meanwhile
        return tell_all({world.rank: own}, world.size)


def _lead(world: MPI.Intracomm, own: LastWords) -> int:
    """Hear all that speak in time, tell it, and let them end: launchers end all ranks with the first."""
    others = [_Ear(world, rank) for rank in range(1, world.size)]
    _within(WORDS_SECONDS, lambda: not [ear for ear in others if not ear.has_heard()])
    words = {ear.rank: ear.said for ear in others if ear.said is not None}
    is_known = own.echo and any(ear.has_told for ear in others)
    code = own.code if is_known and not words else tell_all({0: own, **words}, world.size)
    for rank in words:
        world.Isend([bytearray(1), _mpi_byte()], rank, _ANSWER)
    return code


def _follow(world: MPI.Intracomm, own: LastWords) -> int:
    """Give rank 0 the words and wait until it has told them."""
    said, answer = bytearray(json.dumps(asdict(own)).encode()), bytearray(1)
    sent, answered = world.Isend([said, _mpi_byte()], 0, _WORDS), world.Irecv([answer, _mpi_byte()], 0, _ANSWER)
    if not _within(ANSWER_SECONDS, lambda: sent.Test() & answered.Test()) and not own.echo:
        tell_all({world.rank: own}, world.size)
        world.Isend([bytearray(), _mpi_byte()], 0, _WORDS)
    return own.code


class _Ear:
    """What rank 0 hears of another rank. said: its words, unless it has_told them itself."""

    def __init__(self, world: MPI.Intracomm, rank: int) -> None:
        self.rank, self.has_told = rank, False
        self.said: LastWords | None = None
        self._world = world
        self._heard: bytearray | None = None
        self._coming: MPI.Request | None = None

    def has_heard(self) -> bool:
        """Return whether the rank has spoken."""
        from mpi4py import MPI

        if self._coming is not None and self._coming.Test():
            heard, self._coming = bytes(self._heard or b""), None
            self.said, self.has_told = LastWords(**json.loads(heard)) if heard else None, not heard
        status = MPI.Status()
        if self._coming is None and (message := self._world.Improbe(self.rank, _WORDS, status)) is not None:
            self._heard = bytearray(status.Get_count(MPI.BYTE))
            self._coming = message.Irecv([self._heard, MPI.BYTE])
        return self._heard is not None and self._coming is None


def _mpi_byte() -> MPI.Datatype:
    from mpi4py import MPI

    return MPI.BYTE


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Wait until something holds; return whether it does in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True
