"""The devices of a run as policies see them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import torch

from fleet.machine.cluster_map import ClusterMap
from fleet.report.wording import readable_bytes
from fleet.scheduling.model.cluster import Cluster, Course, Prices
from fleet.scheduling.model.data_path import Lending
from fleet.spec import EnsembleSpec, Problem, SpecError
from fleet.spec.resources import ANY
from fleet.workers.agreement import BadInput
from fleet.workers.preprocessor_rank import divides
from fleet.workers.runtime import Runtime
from trainers import scan
from trainers.repeatable.process_settings import no_exit
from trainers.repeatable.scan import by_multiprocessors


def devices_to_plan(ranks: ClusterMap) -> Cluster:
    """Return the cluster that a run's policy divides among its jobs.

    Neighbours of one kind on a node stand for a node, as a group of these needs no other.
    """
    runs = [list(run) for _, run in groupby(ranks.trainers, key=lambda place: (place.node, place.kind))]
    kinds = tuple(run[0].kind or "" for run in runs) if len(ranks.kinds) > 1 else ()
    return Cluster(tuple(map(len, runs)), kinds, ranks.sharing)


def prices_of(spec: EnsembleSpec, cluster: ClusterMap) -> Prices | None:
    """The prices of the machine's devices, by the kinds that policies know; None: the spec tells none.

    Raises:
        BadInput: a kind has none, or the worth of a device is told and no price.
    """
    told, worth = spec.resources.prices, spec.policy.worth
    if not told:
        if worth is not None:
            raise BadInput(
                f"policy.worth is {worth:g}, and no device has a price; give resources.prices, or leave it out"
            )
        return None
    courses: dict[str, Course] = {}
    for kind, model in cluster.rated.items():
        found = next((told[name] for name in (kind, model, model.partition(",")[0], ANY) if name in told), None)
        if found is None:
            name = kind or model
            raise BadInput(
                f"resources.prices has no price for {name}; there are prices for {', '.join(told)}: add one for it, "
                f"or for `{ANY}`"
            )
        courses[kind] = found
    return Prices(courses, math.inf if worth is None else worth)


UNLIKE_MODELS = (
    "its accelerators are of several models ({models}), whose libraries choose kernels of their own, and nobody has "
    "tried D2 on two of them"
)


def mixes_kinds(runtime: Runtime, cluster: ClusterMap, job: str) -> tuple[bool, str]:
    """Whether a job may have devices of different kinds, and if not, why: it takes determinism D2.

    On processors that is enough. On accelerators the kinds are to be of one model, and a scan of the job's network is
    to find nothing in it whose bits hang on the device: kernels that makers tune, random draws and sums.
    """
    level = runtime.spec.determinism.level
    if level != "D2":
        return False, f"determinism is {level}; only D2 gives the same bits on mixed kinds"
    if cluster.device_name == "cpu":
        return True, ""
    models = sorted({place.device_model or "unknown" for place in cluster.trainers})
    if len(models) > 1:
        return False, UNLIKE_MODELS.format(models=", ".join(models))
    if len(cluster.kinds) < 2:
        return False, "there is one kind of device"
    found = _found(runtime, job)
    return not found, found


def stays_on_one(runtime: Runtime, cluster: ClusterMap, job: str) -> list[str]:
    """Why a job keeps to one kind of accelerator although the run is at D2, in a sentence; else nothing."""
    if runtime.spec.determinism.level != "D2" or cluster.device_name == "cpu" or len(cluster.kinds) < 2:
        return []
    may, why = mixes_kinds(runtime, cluster, job)
    return [] if may else [f"job {job} keeps to one kind of device, as {why}"]


def _found(runtime: Runtime, job: str) -> str:
    """What of a job's network may have other bits on another kind of accelerator; empty: nothing."""
    try:
        with no_exit(), torch.device("meta"):
            model = runtime.task(job).model()
        seen = scan(model)
        found = (*seen.vendor, *seen.replaced, *seen.unread, *by_multiprocessors(model))
    except (Exception, SystemExit) as error:
        return f"its network could not be looked at: {error}"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"its bits may hang on the device: {found[0]}{more}" if found else ""


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


def described_orders(runtime: Runtime) -> Iterator[str]:
    """A sentence on each data set whose order goes by blocks."""
    for name, facts in runtime.facts.items():
        blocks = facts.blocks
        if blocks is not None:
            size = facts.samples / blocks.blocks
            yield (
                f"order of {name}: {blocks.blocks:,} blocks of {size:,.0f} samples on the average, of which "
                f"{blocks.strata} from all over the data are mixed at a time"
            )


def order_problems(runtime: Runtime, preprocessors: int) -> Iterator[str]:
    """Where blocks are read more than once in an epoch."""
    for name, facts in runtime.facts.items():
        blocks = facts.blocks
        if blocks is None:
            continue
        if blocks.strata < preprocessors:
            yield (
                f"data.{name}: {blocks.strata} blocks are mixed at a time, and there are {preprocessors} "
                "preprocessors, each of which then reads all blocks; let order.window be at least "
                f"{preprocessors}, or have more blocks"
            )
        need = blocks.strata * facts.block_bytes
        if need > facts.cache_bytes:
            fits = facts.cache_bytes // facts.block_bytes
            smaller = f", or order.window: {fits}" if fits >= preprocessors else ""
            yield (
                f"data.{name}: the {blocks.strata} blocks of a window take {readable_bytes(need)}, and a preprocessor, "
                f"which may work alone, keeps {readable_bytes(facts.cache_bytes)} of them, so blocks may be read again "
                f"and again; give the source cache: {-(-need // 2**20)} (MiB){smaller}"
            )
