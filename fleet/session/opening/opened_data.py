"""The data sets of a run, opened on the ranks that make samples; what rank 0 says of them is known to all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fleet.machine.cluster_map import COORDINATOR, ClusterMap, gather_at_coordinator
from fleet.spec import EnsembleSpec
from fleet.workers.agreement import BadInput, agree
from fleet.workers.rank import time_limit
from fleet.workers.runtime import FACTS, DataFacts

if TYPE_CHECKING:
    from mpi4py import MPI

    from preprocess import Dataset

_GRACE_SECONDS = 5.0  # the rank that is late speaks before those that wait for it


def open_data(
    world: MPI.Intracomm, cluster: ClusterMap, spec: EnsembleSpec
) -> tuple[dict[str, Dataset], Mapping[str, DataFacts], tuple[str, ...]]:
    """Open the data sets on the ranks that make samples; the others get none, and load nothing that reads data.

    Returns:
        this rank's data sets, the facts of all, and on rank 0 what to warn of.

    Raises:
        BadInput: on every rank alike, if one of them cannot, or has other samples than rank 0; not each node need have
            every file.
    """
    seconds = spec.resources.timeout
    advice = f"if that really takes so long, raise resources.timeout (now {seconds:g} s)"
    datasets: dict[str, Dataset] = {}
    told: tuple[str, ...] = ()
    said: dict[str, Any] = {"error": "", "prints": {}}
    if not cluster.places[world.rank].is_trainer:
        late = f"rank {world.rank} has been opening the data for {seconds:g} s, a source has not come back; {advice}"
        with time_limit(world, seconds, late):
            datasets, said, told = _opened(spec, world.rank)
    late = f"the preprocessors have not opened the data for {seconds:g} s; {advice}"
    with time_limit(world, seconds + _GRACE_SECONDS, late):
        everybody = gather_at_coordinator(world, said)
        facts = agree(world, lambda: _facts(cluster, datasets, everybody), FACTS.validate_python)
    return datasets, facts, told


def _opened(spec: EnsembleSpec, rank: int) -> tuple[dict[str, Dataset], dict[str, Any], tuple[str, ...]]:
    """The data sets, what to tell rank 0 of them, and what rank 0 itself warns of."""
    from fleet.workers.datasets import PRINTS, open_datasets, prints_of, unlike_again
    from preprocess import SourceError
    from preprocess.making.fingerprints import unlike_samples
    from preprocess.samples.errors import TransformError

    try:
        datasets = open_datasets(spec)
        prints = PRINTS.dump_python(prints_of(datasets), mode="json")
        if rank != COORDINATOR:
            return datasets, {"error": "", "prints": prints}, ()
        said = {"error": unlike_again(spec, datasets), "prints": prints}
        return datasets, said, tuple(text for each in datasets.values() for text in unlike_samples(each, spec.seed))
    except (SourceError, TransformError) as found:
        return {}, {"error": str(found), "prints": {}}, ()


def _facts(cluster: ClusterMap, datasets: Mapping[str, Dataset], said: list[dict[str, Any]]) -> Any:
    """The facts of rank 0's data sets as plain values; BadInput tells who could not open them, or has others."""
    from fleet.workers.datasets import PRINTS, facts_of, first_unlike

    # The coordinator's error first, as it needs no name; then the others', by rank.
    if said[COORDINATOR]["error"]:
        raise BadInput(said[COORDINATOR]["error"])
    makers = cluster.preprocessors
    for place in makers:
        if said[place.rank]["error"]:
            raise BadInput(f"rank {place.rank} on {place.host}: {said[place.rank]['error']}")
    prints = [PRINTS.validate_python(said[place.rank]["prints"]) for place in makers]
    unlike = first_unlike(prints, [f"on rank {place.rank} ({place.host})" for place in makers])
    if unlike:
        raise BadInput(unlike)
    return FACTS.dump_python(facts_of(datasets))
