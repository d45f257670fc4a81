"""Whether trainers without a network can prepare samples, as the spec asks."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.machine.cluster_map import ClusterMap
from fleet.scheduling.model.data_path import Lending
from fleet.spec import Problem, SpecError
from fleet.workers.preprocessor_rank import divides
from fleet.workers.runtime import Runtime

_PATH = ("resources", "preparing_trainers")


def lending_problems(runtime: Runtime) -> Iterator[Problem]:
    """Data sets of which each preprocessor makes samples of its own: nobody else can make these."""
    asked = runtime.spec.resources
    for name in runtime.facts if asked.preparing_trainers else ():
        if divides(runtime, name, asked.preprocessors):
            rule = (
                f"prepared samples of {name} are kept by the preprocessors that made them, so trainers could help with "
                "none of them"
            )
            mend = "set it to 0, or keep none (resources.store: {memory: 0}) if preparing them anew costs less"
            yield runtime.spec.origins.problem(_PATH, asked.preparing_trainers, rule, "0", mend)


def check_lending(runtime: Runtime, cluster: ClusterMap) -> None:
    """Raise SpecError if trainers shall prepare samples for several hosts."""
    asked, hosts = runtime.spec.resources.preparing_trainers, len(cluster.nodes)
    if asked and hosts > 1:
        rule = f"trainers prepare samples for their own host alone, and this run has {hosts}"
        mend = "set it to 0 and give more resources.preprocessors, or run on one host"
        raise SpecError((runtime.spec.origins.problem(_PATH, asked, rule, "0", mend),))


def lending_of(runtime: Runtime, cluster: ClusterMap) -> Lending:
    """How many trainers may prepare samples while one trains at least."""
    most = min(runtime.spec.resources.preparing_trainers, len(cluster.trainers) - 1)
    return Lending(len(cluster.preprocessors), most)
