"""The errors of this package: each tells the given value, the rule that it breaks and the mend.

Also what finds them: objects that people name as `module:Name`, and samples that could not be made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import Any, Literal

from preprocess.files.modules import HiddenModule, import_named


class DataSpecError(ValueError):
    """Something that a person wrote is not usable.

    Attributes:
        value: the given value.
        rule: the rule that it breaks.
        mend: what to write instead.
    """

    def __init__(self, value: object, rule: str, mend: str) -> None:
        super().__init__(f"{value!r}: {rule}; {mend}")
        self.value, self.rule, self.mend = value, rule, mend


class SourceError(DataSpecError):
    """A source of samples that cannot be opened."""


class UnusableDataError(SourceError):
    """Several data sets that cannot be used; the text has all of their problems.

    Args:
        problems: by the data set's name.
    """

    def __init__(self, problems: Mapping[str, DataSpecError]) -> None:
        super().__init__(tuple(problems), "cannot be used", "mend each")
        told = "".join(f"\n  {number}. {name}: {error}" for number, (name, error) in enumerate(problems.items(), 1))
        self.args = (f"the data: {len(problems)} problems{told}",)


class NotArrays(SourceError):
    """Inputs or targets that are no arrays, such as dicts of arrays."""


class TransformError(DataSpecError):
    """A transform, or a parameter of one, that does not exist or does not fit."""


class DecodeError(ValueError):
    """An encoded picture that cannot be decoded; the text says why."""


class SharedMemoryError(RuntimeError):
    """The node has too little shared memory for the ring.

    Attributes:
        needed: bytes that the ring takes.
        available: bytes that are free.
        mend: what to change.
    """

    def __init__(self, needed: int, available: int, place: str, mend: str) -> None:
        mib = 2**20
        super().__init__(
            f"the ring needs {needed} bytes ({needed / mib:.1f} MiB) of shared memory on this node, "
            f"{place} has {available} ({available / mib:.1f} MiB) free; {mend}"
        )
        self.needed, self.available, self.mend = needed, available, mend


class LaneError(RuntimeError):
    """A lane was used against its rules: two openings at once, a wrong generation, a lane that is still busy."""


class LaneClosed(LaneError):
    """Nobody reads the lane any more."""


class WriterLost(LaneError):
    """The process that should fill the awaited slot is dead."""


class RingTimeout(TimeoutError):
    """A bounded wait ended without what it waited for; the text says on whom it waited."""


class ServiceError(RuntimeError):
    """The service that prepares samples for this node's loaders did not start, or could not go on."""


class SampleError(RuntimeError):
    """A source or a transform raised while one sample was made; the cause is chained.

    Attributes:
        data: name of the data set.
        kind: "train" or "held_out".
        sample: index in the source.
        epoch: epoch in which it was asked for.
        more: why no other sample took its place, where others may.
    """

    def __init__(
        self, data: str, kind: str, sample: int, epoch: int, cause: BaseException | str, more: str = ""
    ) -> None:
        reason = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
        super().__init__(f"data set {data!r}, {kind} sample {sample}, epoch {epoch}: {reason}{more}")
        self.data, self.kind, self.sample, self.epoch, self.more = data, kind, sample, epoch, more


class CorruptLimitError(RuntimeError):
    """More samples of a data set were skipped than its corrupt_limit allows; the text names the first of them.

    Attributes:
        data: the data set.
    """

    def __init__(self, data: str, limit: int, first: Sequence[str]) -> None:
        self.data = data
        super().__init__(
            f"data set {data!r}: more samples cannot be made than the {limit} of corrupt_limit; the first of them: "
            f"{', '.join(first)}; mend the data, or raise corrupt_limit"
        )


def spelling_advice(value: str, names: Iterable[str]) -> str:
    """Return advice on `value`, which is none of `names`: the nearest of them, if one is near, and all of them."""
    known = sorted(names)
    close = get_close_matches(value, known, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}known: {', '.join(known) if known else 'none'}"


Stage = Literal["source", "transform"]

#: Characters of an error that are kept: some libraries put a whole file into theirs.
_MOST_REASON = 300
_MOST_NAMED = 5


@dataclass(frozen=True)
class SkippedSample:
    """A sample that could not be made, so that another was taken.

    Attributes:
        data: name of the data set.
        kind: "train" or "held_out".
        sample: index in the source.
        substitute: index of the sample that was taken.
        epoch: epoch in which that happened first.
        reason: kind and text of the error.
        stage: "source" if reading it raised: that is so in every epoch. "transform" if a transform raised, or if it
            does not have the others' shape: that may be so for the random numbers of some epochs alone.
    """

    data: str
    kind: str
    sample: int
    substitute: int
    epoch: int
    reason: str
    stage: Stage = "source"

    def __str__(self) -> str:
        return f"{self.kind} sample {self.sample} ({self.reason})"


class CorruptSamples:
    """The samples of one data set that were skipped, each counted once.

    Args:
        data: name of the data set.
        limit: how many there may be.
        on_skip: called with each, once.
    """

    def __init__(self, data: str, limit: int, on_skip: Callable[[SkippedSample], None] | None = None) -> None:
        self.on_skip = on_skip
        self._data, self._limit = data, limit
        self._skipped: dict[tuple[str, int], SkippedSample] = {}
        self._told: set[tuple[str, int]] = set()
        self._told_kinds: set[str] = set()

    def tell(self, kind: str, samples: Iterable[int]) -> None:
        """Take samples as corrupt that somebody else found."""
        told = {(kind, sample) for sample in samples}
        self._told |= told
        self._told_kinds |= {kind for kind, _ in told}

    def was_told(self, kind: str, sample: int) -> bool:
        """Say whether somebody else found the sample corrupt."""
        return (kind, sample) in self._told

    def was_told_any(self, kind: str) -> bool:
        """Say whether somebody else found any sample of this kind corrupt."""
        return kind in self._told_kinds

    def add(self, skipped: SkippedSample) -> None:
        """Note a sample that was skipped.

        Raises:
            CorruptLimitError: it is one too many.
        """
        key = (skipped.kind, skipped.sample)
        if key in self._skipped or key in self._told:
            return
        self._skipped[key] = skipped
        if self.on_skip is not None:
            self.on_skip(skipped)
        if len(self._skipped) + len(self._told) > self._limit:
            raise CorruptLimitError(self._data, self._limit, list(map(str, self._skipped.values()))[:_MOST_NAMED])


def reason_of(error: Exception) -> str:
    """Return kind and text of an error in one line, cut where it is very long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _MOST_REASON else text[:_MOST_REASON] + " ..."


ENDS_THE_PROCESS = (
    "a module that is imported should end no process: read the command line, or call sys.exit, below "
    'if __name__ == "__main__":'
)
"""The mend of a module that raises SystemExit, as argparse does where the words are another command's."""


def load_object(name: str, error: type[DataSpecError]) -> Any:
    """Import `module:Name` and return the object; dots in Name reach into it.

    Raises:
        error: the text has no colon, the module does not import, or it has no such name.
    """
    module_name, colon, path = name.partition(":")
    if not (colon and module_name and path):
        raise error(name, "a name of your own is written module:Name", "write for example mypackage.data:Digits")
    found: Any = _import(module_name, name, error)
    for part in path.split("."):
        if not hasattr(found, part):
            public = (key for key in dir(found) if not key.startswith("_"))
            raise error(name, f"{module_name!r} imports, but has no {part!r}", spelling_advice(part, public))
        found = getattr(found, part)
    return found


def _import(module_name: str, name: str, error: type[DataSpecError]) -> ModuleType:
    try:
        with same_folder():
            return import_named(module_name)
    except HiddenModule as cause:
        raise error(name, cause.rule, cause.mend) from None
    except (Exception, SystemExit) as cause:  # a user's module may raise anything while it is imported
        reason = f"importing {module_name!r} raised {type(cause).__name__}: {cause}"
        mend = "mend the module, run from the folder that holds it, or put that folder on PYTHONPATH"
        mend = ENDS_THE_PROCESS if isinstance(cause, SystemExit) else mend
        raise error(name, reason, mend) from cause


@contextmanager
def same_folder() -> Iterator[None]:
    """Go back to the current folder: a module may leave it, and others' relative paths begin there."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it is gone
        yield
        return
    try:
        yield
    finally:
        os.chdir(here)
