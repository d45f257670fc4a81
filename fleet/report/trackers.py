"""The trackers that fleet has itself: MLflow, TensorBoard, and Weights & Biases without its server."""

from __future__ import annotations

import hashlib
import json
import os
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fleet.journal.whole_files import masked_uri
from fleet.report.tracker import ENDED, Point, StoreError, TrackedEnsemble, TrackedRun, Tracker, TrackingError
from fleet.report.tracking import EventFile, begin_of_trial, end_of_trial, folder_of
from preprocess.files.reading import read_json
from preprocess.files.writing import make_folder, write_whole

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


class Mlflow(Tracker):
    """MLflow, https://mlflow.org/docs/latest/ml/tracking: a run for each network, below one for all together.

    `uri` is a folder, or what MLflow takes for a tracking URI; None: MLFLOW_TRACKING_URI, else `default_uri`.
    """

    default_uri = "mlruns"

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or self.default_uri
        super().__init__(uri if "://" in uri or uri == "databricks" else Path(uri).absolute().as_uri(), experiment)
        self._runs: dict[str, _Known] = {}
        self._id = ""

    def open(self, run: TrackedEnsemble) -> None:
        super().open(run)
        client = self._client
        with _mendable(self.uri):
            self._id = self._experiment_id(client, self.experiment)
            self._runs = dict(self._find(run.ensemble.identity))

    def is_told(self, run: TrackedRun) -> bool:
        return run.job in self._runs and self._runs[run.job].digest == run.digest()

    def known(self, run: TrackedRun) -> Collection[tuple[str, int]] | None:
        if run.job not in self._runs:
            return None
        known = self._runs[run.job]
        with _mendable(self.uri):
            if known.points is None:
                of_metric = {name: self._client.get_metric_history(known.run_id, name) for name in known.metrics}
                known.points = {(name, value.step) for name, values in of_metric.items() for value in values}
        return [(point.metric, point.step) for point in run.points if (_key(point.metric), point.step) in known.points]

    def log(self, run: TrackedRun, new: Sequence[Point]) -> None:
        with _mendable(self.uri):
            known = self._runs.get(run.job)
            if known is None:
                marks = {_RUN: run.identity, **({_PARENT: self._runs[""].run_id, _JOB: run.job} if run.job else {})}
                begin = run.begin if run.begin is not None else run.end
                made = self._client.create_run(self._id, start_time=begin, tags=marks, run_name=run.name)
                known = self._runs[run.job] = _Known(made.info.run_id, status=made.info.status, points=set())
            self._add_points(known, new)
            self._add_facts(known, run)
            self._set_status(known, run)
            self._log(known, tags={_TOLD: run.digest()})
            known.digest = run.digest()

    @cached_property
    def _client(self) -> MlflowClient:
        for name, value in _USUAL_SETTINGS.items():
            os.environ.setdefault(name, value)
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise TrackingError(f'MLflow is not installed ({error}): pip install "fleet-hpc[track]"') from error
        with _mendable(self.uri):
            return MlflowClient(tracking_uri=self.uri)

    def _experiment_id(self, client: MlflowClient, name: str) -> str:
        found = client.get_experiment_by_name(name)
        if found is None:
            return client.create_experiment(name)
        if found.lifecycle_stage != "active":
            mend = f"mlflow experiments restore --experiment-id {found.experiment_id}"
            raise TrackingError(f"MLflow's experiment {name} was deleted: name another by --experiment, or {mend}")
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

    def _add_points(self, known: _Known, new: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        assert known.points is not None, "they are read before any is added"
        for some in _parts(new, _MOST_POINTS):
            metrics = [Metric(_key(point.metric), point.value, point.time, point.step) for point in some]
            self._client.log_batch(known.run_id, metrics=metrics)
            known.points.update((metric.key, metric.step) for metric in metrics)

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
        ended = run.status in ENDED
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


class _InFolder(Tracker):
    """A tracker whose files nobody can ask: a note beside them says what was told."""

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        super().__init__(uri, experiment)
        self._notes: dict[str, dict[str, Any]] = {}
        self._files: dict[str, Any] = {}  # job -> what is open

    def open(self, run: TrackedEnsemble) -> None:
        super().open(run)
        self._root = Path(self.uri).absolute()
        self._name = Path(folder_of(self.experiment), folder_of(run.ensemble.identity[:12]))

    def is_told(self, run: TrackedRun) -> bool:
        return self._note(run).get("digest") == run.digest()

    def known(self, run: TrackedRun) -> Collection[tuple[str, int]] | None:
        note = self._note(run)
        return {(name, step) for name, steps in note["points"].items() for step in steps} if note else None

    def log(self, run: TrackedRun, new: Sequence[Point]) -> None:
        points: dict[str, list[int]] = self._note(run).get("points", {})
        self.write(run, _by_step(new), max((step for steps in points.values() for step in steps), default=0))
        for point in new:
            points.setdefault(point.metric, []).append(point.step)
        self._notes[run.job] = {"digest": run.digest(), "points": points}
        make_folder(self._place(run).parent)
        write_whole(self._place(run), json.dumps(self._notes[run.job]))

    @abstractmethod
    def write(self, run: TrackedRun, rows: Sequence[_Row], last: int) -> None:
        """Add rows to a run's files. last: the largest step of those that were told before."""

    def _note(self, run: TrackedRun) -> dict[str, Any]:
        """What was told of a run: `digest`, and under `points` the steps of each metric; empty: nothing."""
        if run.job not in self._notes:
            with suppress(FileNotFoundError):
                self._notes[run.job] = read_json(self._place(run))
        return self._notes.get(run.job, {})

    def _place(self, run: TrackedRun) -> Path:
        return self._root / ".fleet" / self._name / f"{folder_of(run.job)}.json"


_Row = tuple[int, float, dict[str, float]]
"""A step, seconds since 1970, and the metrics that were measured then."""


def _by_step(points: Sequence[Point]) -> list[_Row]:
    rows: dict[tuple[int, int], dict[str, float]] = {}
    for point in points:
        rows.setdefault((point.step, point.time), {})[point.metric] = point.value
    return [(step, time / 1000, values) for (step, time), values in sorted(rows.items())]


class TensorBoard(_InFolder):
    """TensorBoard: below `uri`, a folder for each network, with its metrics, and its parameters for the tab HParams."""

    default_uri = "tensorboard"

    def open(self, run: TrackedEnsemble) -> None:
        _require("tensorboard")
        super().open(run)

    def write(self, run: TrackedRun, rows: Sequence[_Row], last: int) -> None:
        begin = (run.begin or run.end or 0) / 1000
        if run.job not in self._files:
            self._files[run.job] = EventFile(self._root / self._name / folder_of(run.job or "all"), last + 1)
            if run.job:  # without a list of all parameters, TensorBoard makes it of those that the networks have
                values = begin_of_trial(run.job, run.parameters, (), "loss", begin)
                self._files[run.job].tell(values[-1], begin)
        for step, unix, metrics in rows:
            self._files[run.job].put(metrics, step, unix)
        if run.status in ENDED:
            if run.job:
                end = (run.end or 0) / 1000
                self._files[run.job].tell(end_of_trial(run.status == "FAILED", end), end)
            self._files.pop(run.job).close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


class WeightsAndBiases(_InFolder):
    """Weights & Biases without its server: below `uri`, a folder, one run for each network, for `wandb sync`."""

    def open(self, run: TrackedEnsemble) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        _require("wandb")
        super().open(run)

    def write(self, run: TrackedRun, rows: Sequence[_Row], last: int) -> None:
        import wandb

        if run.job not in self._files:
            make_folder(self._root)
            self._files[run.job] = wandb.init(
                project=_FORBIDDEN_IN_PROJECT.sub("_", self.experiment)[:128],
                name=run.name,
                id=hashlib.blake2b(f"{run.identity} {run.job}".encode(), digest_size=8).hexdigest(),
                group=self.experiment,
                job_type="network" if run.job else "all",
                config=dict(run.parameters),
                dir=str(self._root),
                mode="offline",
                reinit="create_new",
                settings=wandb.Settings(
                    silent=True, console="off", save_code=False, disable_git=True, x_disable_stats=True
                ),
            )
            self._files[run.job].define_metric("*", step_metric="step")
        told = self._files[run.job]
        for step, unix, metrics in rows:
            told.log({**metrics, "step": step, "unix": unix})
        told.summary.update({**run.tags, "fleet.tracked": run.status})
        if run.status in ENDED:
            self._files.pop(run.job).finish(exit_code=int(run.status != "FINISHED"))

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].finish()


_FORBIDDEN_IN_PROJECT = re.compile(r"[/\\#?%:]")


def _require(package: str) -> None:
    try:
        import_module(package)
    except ImportError as error:
        raise TrackingError(f"{package} is not installed ({error}): pip install {package}") from error
