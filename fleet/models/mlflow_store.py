"""Tells MLflow of a run: https://mlflow.org/docs/latest/ml/tracking."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fleet.journal.whole_files import masked_uri
from fleet.models.errors import ModelsError
from fleet.models.tracking import Point, StoreError, Told, TrackedEnsemble, TrackedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


_RUN, _JOB, _TOLD, _PARENT = "fleet.run", "fleet.job", "fleet.told", "mlflow.parentRunId"
_CHANGED = "fleet.changed."  # before the key of a parameter that has another value by now: MLflow lets none change
_MOST_POINTS, _MOST_OTHERS = 1000, 100  # in one message
_MOST_KEY, _MOST_VALUE = 250, 6000
_FORBIDDEN = re.compile(r"[^\w.\- :]")
_USUAL_SETTINGS = {
    "MLFLOW_ALLOW_FILE_STORE": "true",  # else the newest versions refuse folders
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
_ENDED = ("FINISHED", "FAILED", "KILLED")
Item = TypeVar("Item")


@dataclass
class _Known:
    """What MLflow has of one run.

    Attributes:
        digest: it stands for what was told; empty: that was interrupted.
        metrics: which ones it has values of.
        points: metrics and steps of these values, once they have been read.
    """

    run_id: str
    digest: str = ""
    status: str = ""
    end: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: frozenset[str] = frozenset()
    points: set[tuple[str, int]] | None = None


class MlflowStore:
    """The runs of one ensemble in a store of MLflow: told again, it adds what is new.

    Args:
        uri: a folder, or what MLflow takes for a tracking URI.
        experiment: name of the experiment; None: the ensemble's.

    Raises:
        ModelsError: MLflow is not installed.
    """

    def __init__(self, uri: str, experiment: str | None = None) -> None:
        self.uri = uri if "://" in uri or uri == "databricks" else Path(uri).absolute().as_uri()
        self._client = _client(self.uri)
        self._experiment = experiment
        self._known: dict[str, _Known] | None = None
        self._id = ""

    def tell(self, run: TrackedEnsemble) -> Told:
        """Add what MLflow does not have yet. A network comes as soon as it has begun.

        An interrupted call leaves what it has told; the next one adds the rest.

        Raises:
            StoreError: the store cannot be read or written.
            ModelsError: the experiment was deleted.
        """
        with _mendable(self.uri):
            if self._known is None:
                self._id = self._experiment_id(self._experiment or run.name)
                self._known = dict(self._find(run.identity))
            told = self._tell_run(run.ensemble, self._known, {_RUN: run.identity})
            parent = {_RUN: run.identity, _PARENT: self._known[""].run_id}
            for network in run.networks:
                if network.begin is not None or network.end is not None:
                    told += self._tell_run(network, self._known, {**parent, _JOB: network.job})
            return told

    def _experiment_id(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            return self._client.create_experiment(name)
        if found.lifecycle_stage != "active":
            mend = f"mlflow experiments restore --experiment-id {found.experiment_id}"
            raise ModelsError(f"MLflow's experiment {name} was deleted: name another by --experiment, or {mend}")
        return str(found.experiment_id)

    def _find(self, identity: str) -> Iterator[tuple[str, _Known]]:
        """The runs that MLflow has of this ensemble, by job."""
        token: str | None = ""
        while token is not None:
            page = self._client.search_runs(
                [self._id], f"tags.`{_RUN}` = '{identity}'", max_results=1000, page_token=token or None
            )
            yield from ((run.data.tags.get(_JOB, ""), self._known_of(run)) for run in page)
            token = page.token or None

    def _known_of(self, run: Run) -> _Known:
        tags, run_id = dict(run.data.tags), run.info.run_id
        ended, metrics = run.info.end_time or None, frozenset(run.data.metrics)
        return _Known(run_id, tags.get(_TOLD, ""), run.info.status, ended, dict(run.data.params), tags, metrics)

    def _tell_run(self, run: TrackedRun, runs: dict[str, _Known], marks: Mapping[str, str]) -> Told:
        known, digest, new = runs.get(run.job), run.digest(), 0
        if known is None:
            begin = run.begin if run.begin is not None else run.end
            made = self._client.create_run(self._id, start_time=begin, tags=dict(marks), run_name=run.name)
            known, new = runs.setdefault(run.job, _Known(made.info.run_id, status=made.info.status)), 1
        elif known.digest == digest:
            return Told()
        added = self._add_points(known, run.points)
        self._add_facts(known, run)
        self._set_status(known, run)
        self._log(known, tags={_TOLD: digest})
        known.digest = digest
        return Told(new, added)

    def _add_points(self, known: _Known, points: Sequence[Point]) -> int:
        from mlflow.entities import Metric

        if known.points is None:
            of_metric = {name: self._client.get_metric_history(known.run_id, name) for name in known.metrics}
            known.points = {(name, value.step) for name, values in of_metric.items() for value in values}
        new = [point for point in points if (_key(point.metric), point.step) not in known.points]
        for some in _parts(new, _MOST_POINTS):
            metrics = [Metric(_key(point.metric), point.value, point.time, point.step) for point in some]
            self._client.log_batch(known.run_id, metrics=metrics)
            known.points.update((metric.key, metric.step) for metric in metrics)
        return len(new)

    def _add_facts(self, known: _Known, run: TrackedRun) -> None:
        wanted = {_key(name): value[:_MOST_VALUE] for name, value in run.parameters.items()}
        new = {name: value for name, value in wanted.items() if name not in known.parameters}
        changed = {name: value for name, value in wanted.items() if value != known.parameters.get(name, value)}
        tags = {**run.tags, **{_CHANGED + name: value for name, value in changed.items()}}
        cut = {_key(name): value[:_MOST_VALUE] for name, value in tags.items()}
        self._log(known, new, {name: value for name, value in cut.items() if known.tags.get(name) != value})
        for name in [name for name in known.tags if name.startswith("fleet.") and _is_stale(name, cut)]:
            self._client.delete_tag(known.run_id, name)
            del known.tags[name]

    def _set_status(self, known: _Known, run: TrackedRun) -> None:
        ended = run.status in _ENDED
        if ended and (known.status, known.end) != (run.status, run.end):
            self._client.set_terminated(known.run_id, run.status, run.end)
        elif not ended and known.status != run.status:
            self._client.update_run(known.run_id, status=run.status)
        known.status, known.end = run.status, run.end if ended else None

    def _log(
        self, known: _Known, parameters: Mapping[str, str] | None = None, tags: Mapping[str, str] | None = None
    ) -> None:
        from mlflow.entities import Param, RunTag

        for some in _parts((parameters or {}).items(), _MOST_OTHERS):
            self._client.log_batch(known.run_id, params=[Param(*pair) for pair in some])
        for some in _parts((tags or {}).items(), _MOST_OTHERS):
            self._client.log_batch(known.run_id, tags=[RunTag(*pair) for pair in some])
        known.parameters.update(parameters or {})
        known.tags.update(tags or {})


def _is_stale(name: str, wanted: Mapping[str, str]) -> bool:
    return name not in wanted and name not in (_RUN, _JOB, _TOLD)


def _key(name: str) -> str:
    """A name as MLflow takes it: other characters become underscores."""
    plain = _FORBIDDEN.sub("_", name)[:_MOST_KEY]
    return plain if plain.strip(".") else f"_{plain}"


def _parts(items: Any, size: int) -> Iterator[list[Any]]:
    remaining = iter(items)
    while some := list(islice(remaining, size)):
        yield some


def _client(uri: str) -> MlflowClient:
    for name, value in _USUAL_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise ModelsError(f'MLflow is not installed ({error}): pip install "fleet-hpc[track]"') from error
    with _mendable(uri):
        return MlflowClient(tracking_uri=uri)


@contextmanager
def _mendable(uri: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        told = masked_uri(f"MLflow's store {uri}: {str(error).splitlines()[0]}")
        raise StoreError(f"{told}; mend that, or name another by --uri") from error
    except OSError as error:
        told = masked_uri(f"MLflow's store {uri}: {error.strerror or error}")
        raise StoreError(f"{told}; make room, or name another by --uri") from error
