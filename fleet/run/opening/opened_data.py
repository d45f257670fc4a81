"""The data sets of a run, opened on the ranks that make samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.machine.cluster_map import COORDINATOR, ClusterMap, gather
from fleet.run.bad_input import BadInput
from fleet.run.ranks.runtime import open_datasets
from fleet.run.ranks.same_samples import PRINTS, first_unlike, prints_of, unlike_again
from fleet.run.ranks.time_limit import time_limit
from fleet.spec import EnsembleSpec
from preprocess import Dataset, SourceError, TransformError
from preprocess.making.made_again import unlike_samples

if TYPE_CHECKING:
    from mpi4py import MPI

_GRACE_SECONDS = 5.0  # the rank that is late speaks before those that wait for it


def open_data(
    world: MPI.Intracomm, cluster: ClusterMap, spec: EnsembleSpec
) -> tuple[dict[str, Dataset], tuple[str, ...]]:
    """Open the data sets on the ranks that make samples; the others get none. Rank 0 also gets what to warn of.

    Raises:
        BadInput: on every rank alike, if one of them cannot, or has other samples than rank 0; not each node need have
            every file.
    """
    datasets, error, told, prints = {}, "", tuple[str, ...](), prints_of({})
    seconds = spec.resources.timeout
    advice = f"if that really takes so long, raise resources.timeout (now {seconds:g} s)"
    if not cluster.places[world.rank].is_trainer:
        late = f"rank {world.rank} has been opening the data for {seconds:g} s, a source has not come back; {advice}"
        try:
            with time_limit(world, seconds, late):
                datasets = open_datasets(spec)
                prints = prints_of(datasets)
                if world.rank == COORDINATOR:
                    error = unlike_again(spec, datasets)
                    told = tuple(text for each in datasets.values() for text in unlike_samples(each, spec.seed))
        except (SourceError, TransformError) as found:
            error = str(found)
    late = f"the preprocessors have not opened the data for {seconds:g} s; {advice}"
    with time_limit(world, seconds + _GRACE_SECONDS, late):
        said_by_all = gather(world, {"error": error, "prints": PRINTS.dump_python(prints, mode="json")})
    _raise_first(cluster, [said["error"] for said in said_by_all])
    everywhere = [PRINTS.validate_python(said["prints"]) for said in said_by_all]
    unlike = first_unlike(everywhere, [f"on rank {place.rank} ({place.host})" for place in cluster.places])
    if unlike:
        raise BadInput(unlike)
    return datasets, told


def _raise_first(cluster: ClusterMap, errors: list[str]) -> None:
    """The coordinator's error first, as it needs no name; then the others', by rank."""
    if errors[COORDINATOR]:
        raise BadInput(errors[COORDINATOR])
    for place, error in zip(cluster.places, errors):
        if error:
            raise BadInput(f"rank {place.rank} on {place.host}: {error}")
