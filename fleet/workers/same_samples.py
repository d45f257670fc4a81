"""Whether all that construct a data set have the same samples: each rank that makes some, and a rank a second time.

Constructions draw under one seed (see `preprocess.sources.map_style.open_items`). What draws from elsewhere, such as
the clock, or depends on the process, such as the order of a set, would have networks train on held-out samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from fleet.coordination.errors import CannotGoOnError
from fleet.spec import EnsembleSpec
from fleet.workers.datasets import dataset_specs
from fleet.workers.packed_data import PackedData
from fleet.workers.runtime import Runtime
from preprocess import HELD_OUT, TRAIN, Dataset, DatasetSpec
from preprocess.samples.fingerprint import MEND, Fingerprint
from preprocess.sources.source import open_source

Prints = Mapping[str, Mapping[str, Fingerprint]]
"""By data set and kind of sample."""
PRINTS: TypeAdapter[Prints] = TypeAdapter(Prints)

_KINDS = {TRAIN: "training", HELD_OUT: "held-out", "weights": "order's weighed"}


def prints_of(datasets: Mapping[str, Dataset]) -> dict[str, dict[str, Fingerprint]]:
    """The fingerprints of opened data sets."""
    return {key: data.fingerprints for key, data in datasets.items()}


def unlike_again(spec: EnsembleSpec, datasets: Mapping[str, Dataset]) -> str:
    """What to say of a held-out part that is another one when it is constructed again in this process; "" of none."""
    for key, specs in dataset_specs(spec).items():
        unlike = _unlike_again(specs, datasets[key])
        if unlike:
            return (
                f"data {key}: constructed a second time, the held-out part {unlike}. Training and held-out samples are "
                f"constructed one after the other, so a network would train on held-out ones. {MEND}"
            )
    return ""


def _unlike_again(specs: DatasetSpec, data: Dataset) -> str:
    if specs.held_out is None or specs.held_out == specs.train or not data.preparation(HELD_OUT).has_own_source:
        return ""
    items = data.items
    if isinstance(items, PackedData):  # which has constructed the other part, too, to know its largest sample
        return items.unlike_part(data.items_of(HELD_OUT), specs.seed)
    source: Any = open_source(specs.held_out.source, specs.held_out.arguments, specs.held_out.subset, seed=specs.seed)
    return data.fingerprints[HELD_OUT].unlike(Fingerprint.of(len(source), source.read, specs.seed))


def unlike_prints(prints: Prints, others: Prints, where: str) -> Iterator[str]:
    """What to say of data sets that are others elsewhere, one sentence each.

    Args:
        prints: as rank 0 has them.
        others: as they are elsewhere.
        where: says where, such as "on rank 1".
    """
    more = f"{MEND}, and give every node the same files"
    for key, kinds in prints.items():
        for kind, mine in kinds.items():
            theirs = others.get(key, {}).get(kind)
            told = "" if theirs is None else mine.unlike(theirs, "on rank 0", where)
            if told:
                yield f"data {key}: its {_KINDS[kind]} part {told}. {more}"


def hold_alike(runtime: Runtime, datasets: Mapping[str, Dataset], rank: int) -> None:
    """Raise CannotGoOnError if this rank, which opens data sets later than others, has other samples than rank 0."""
    known = {key: facts.prints for key, facts in runtime.facts.items() if key in datasets}
    for told in unlike_prints(known, prints_of(datasets), f"on rank {rank}"):
        raise CannotGoOnError(told)


def first_unlike(gathered: Sequence[Prints], places: Sequence[str]) -> str:
    """What to say of the first rank whose data are not rank 0's; "" of none."""
    for place, prints in zip(places, gathered):
        for told in unlike_prints(gathered[0], prints, place):
            return told
    return ""
