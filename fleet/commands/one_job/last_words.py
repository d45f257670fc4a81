"""What is said where one job ends by an error: once for all ranks that say alike, with the lines of a person's code."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from traceback import FrameSummary

from fleet.commands.one_job.options import TrainError
from fleet.machine.horovod import HorovodMissing
from fleet.machine.launch.launched import BAD_INPUT, FAILED
from fleet.machine.raised_in import a_persons_lines, lines_of_torch
from fleet.machine.standard_streams import tell
from fleet.spec.references import ReferenceProblem
from trainers import CheckpointError, Diverged, PeerFailed, PeerSilent, PinsDiffer, UnevenGradients, UntoldState
from trainers.proof.ddp_processes import ProcessFailed
from trainers.proof.tensor_trace import TensorTraceError
from trainers.reduce.gradients import GradientTwice, SparseGradient
from trainers.repeatable.instruction_sets import PinsTooLate
from trainers.repeatable.operators import NonDeterministicOperator
from trainers.step.compiled import CannotCompile
from trainers.step.compute import UnfitLoss
from trainers.task.parts import PhaseError
from trainers.task.unfit_task import UnfitTask


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
