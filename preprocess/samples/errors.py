"""The errors of this package: each tells the given value, the rule that it breaks and the mend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches


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
