"""Which of a script's DataLoaders gives its held-out samples: one whose name says so, or else the last."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from fleet.spec.from_script.loader_names import assigned_at
from fleet.spec.from_script.report import Report
from fleet.spec.from_script.watch import Step, Watch

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ENDS = r"(?:loader|dataset|set|data|dl|ds|iter)*s?"
_SAY = tuple(
    re.compile(f"(?:{words}){_ENDS}")
    for words in ("val|valid|validation|validate|dev|held|heldout|holdout|eval|evaluation|evaluate", "test|testing")
)
"""What a name says of samples that are held out: first, that they are looked at while training goes on."""
_TRAIN = re.compile(f"(?:train|training){_ENDS}")
_NOTHING, _AGAINST = len(_SAY), len(_SAY) + 1


def held_out_loader(report: Report, watch: Watch, step: Step, others: Sequence[Any]) -> Any:
    """The loader of the held-out samples among those beside the training's; tells where it is a guess."""
    names = {id(each): _names(watch, step, each) for each in others}
    own = [_rank(names[id(each)]) for each in others]
    ranks = [_rank(_data_says(watch, step, each)) if rank == _NOTHING else rank for each, rank in zip(others, own)]
    best = min(ranks)
    place = max(place for place, rank in enumerate(ranks) if rank == best)
    if len(others) > 1 or best >= _NOTHING:
        report.tell(_told([_called(watch, each, names[id(each)]) for each in others], place, best))
    return others[place]


def _told(called: list[str], place: int, rank: int) -> str:
    taken, rest = called[place], [each for each in called if each != called[place]]
    why = "whose name says so" if rank < _NOTHING else "the last that was made" if rest else "the only other one"
    beside = f"; there are also {', '.join(rest)}" if rest else ""
    mend = "if others are meant, change held_out in the spec's data"
    return f"the held-out samples are a guess, those of {taken}, {why}{beside}; {mend}"


def _names(watch: Watch, step: Step, loader: Any) -> tuple[str, ...]:
    """What the script calls a loader, now or where it made it."""
    making = watch.makings.constructor(loader)
    line = 0 if making is None else making.line
    return step.names.get(id(loader), ()) or (assigned_at(watch.makings.script, line) if line else ())


def _data_says(watch: Watch, step: Step, loader: Any) -> tuple[str, ...]:
    """What the data set of a loader is called, and the words with which it was made, such as split="val"."""
    making = watch.makings.constructor(loader.dataset)
    given = {} if making is None else making.arguments
    words = [value for value in given.values() if isinstance(value, str) and value.isidentifier()]
    words += ["test" if given["train"] is False else "train"] if isinstance(given.get("train"), bool) else []
    return (*step.names.get(id(loader.dataset), ()), *words)


def _rank(names: Iterable[str]) -> int:
    """How well names say that samples are held out, the less the better."""
    words = [word.lower() for name in names for word in _WORDS.findall(name)]
    if any(_TRAIN.fullmatch(word) for word in words):
        return _AGAINST
    return next((rank for rank, say in enumerate(_SAY) if any(map(say.fullmatch, words))), _NOTHING)


def _called(watch: Watch, loader: Any, names: Sequence[str]) -> str:
    making = watch.makings.constructor(loader)
    where = f"line {making.line}" if making is not None and making.line else "a loader without a name"
    return f"{names[0]} ({where})" if names else f"the DataLoader of {where}"
