"""Metrics for other tools: metrics.csv, and TensorBoard files for each job.

TensorBoard's files are written without the thread of its own writer: that dies of a full disk, with a traceback.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet.journal import events
from fleet.journal.journal import read_journal
from fleet.report.metrics_file import MetricsFile
from fleet.search.space import TrialColumns
from preprocess.files.writing import make_folder, new_file

_TAG = "_hparams_/"


def begin_of_trial(job: str, values: Mapping[str, Any], columns: Sequence[str], metric: str, unix: float) -> list[Any]:
    """Two summaries: which values and which metric there are, and those of this trial.

    Args:
        job: the trial's name.
        values: parameter -> value.
        columns: all parameters of the search.
        metric: the tag of its metric.
        unix: when it began, seconds since 1970.

    Raises:
        ImportError: there is no tensorboard.
    """
    from tensorboard.plugins.hparams.api_pb2 import Experiment, HParamInfo, MetricInfo, MetricName
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    infos = [HParamInfo(name=name) for name in columns]
    metrics = [MetricInfo(name=MetricName(tag=metric))]
    experiment = HParamsPluginData(experiment=Experiment(hparam_infos=infos, metric_infos=metrics), version=0)
    begun = SessionStartInfo(group_name=job, start_time_secs=unix)
    for name, value in values.items():
        _put(begun.hparams[name], value)
    start = HParamsPluginData(session_start_info=begun, version=0)
    return [_summary("experiment", experiment), _summary("session_start_info", start)]


def end_of_trial(failed: bool, unix: float) -> Any:
    """The summary that tells that a trial is done, or has failed."""
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    status = Status.Value("STATUS_FAILURE" if failed else "STATUS_SUCCESS")
    data = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=unix), version=0)
    return _summary("session_end_info", data)


def _put(cell: Any, value: Any) -> None:
    if isinstance(value, bool):
        cell.bool_value = value
    elif isinstance(value, (int, float)):
        cell.number_value = value
    else:
        cell.string_value = value if isinstance(value, str) else json.dumps(value)


def _summary(tag: str, data: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_FLOAT

    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    nothing = TensorProto(dtype=DT_FLOAT, tensor_shape=TensorShapeProto(), float_val=[0.0])
    one = Summary.Value(tag=f"{_TAG}{tag}", metadata=SummaryMetadata(plugin_data=plugin), tensor=nothing)
    return Summary(value=[one])


_VERSION = "brain.Event:2"
_NUMBERS = count()


def tag_of(name: str) -> str:
    """What TensorBoard calls a value of that name."""
    return re.sub(r"[^-/\w.]", "_", name).lstrip("/")


class EventFile:
    """The values of one job since it was started.

    Args:
        folder: the job's; made if there is none.
        purge: the step from which on values of earlier files do not count.

    Raises:
        ImportError: there is no tensorboard.
        OSError: it cannot be written.
    """

    def __init__(self, folder: Path, purge: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        make_folder(folder)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self._records = RecordWriter(os.fdopen(new_file(folder / name), "wb"))
        self._put(Event(wall_time=now, file_version=_VERSION))
        self._put(Event(step=purge, file_version=_VERSION))
        self._put(Event(step=purge, session_log=SessionLog(status=SessionLog.START)))

    def put(self, values: Mapping[str, float], step: int, unix: float) -> None:
        """Write the values of a step, at once. OSError if they cannot be."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for name, value in values.items():
            summary = Summary(value=[Summary.Value(tag=tag_of(name), simple_value=value)])
            self._put(Event(wall_time=unix, step=step, summary=summary))
        self._records.flush()

    def tell(self, summary: object, unix: float) -> None:
        """Write a summary that belongs to no step, at once. OSError if it cannot be."""
        from tensorboard.compat.proto.event_pb2 import Event

        self._put(Event(wall_time=unix, summary=summary))  # type: ignore[arg-type]
        self._records.flush()

    def close(self) -> None:
        """Write no more."""
        self._records.close()

    def _put(self, event: object) -> None:
        self._records.write(event.SerializeToString())  # type: ignore[attr-defined]


class Tracking(events.Observer):
    """Takes journal events and writes run_dir/metrics.csv and run_dir/tensorboard/<job>/.

    Going on with a run adds no row twice: the later (job, epoch) replaces the earlier, in TensorBoard by its purge
    step. Rows of epochs that a search took back are taken out. Without the tensorboard package only metrics.csv is
    written, and a warning says so. A file that cannot be written ends no run: a warning says so, and the next epoch
    tries again. Rows of a search's trials have their values in columns of their own, and TensorBoard's plugin for
    hyper-parameters gets these too.

    Args:
        run_dir: the run's directory.
        tensorboard: whether TensorBoard's files are written.
        trials: the columns of its search; None: it has none.
    """

    def __init__(self, run_dir: Path, tensorboard: bool = True, trials: TrialColumns | None = None) -> None:
        self._run_dir, self._trials = Path(run_dir), trials
        self._columns = () if trials is None else trials.names
        self._values: dict[str, Mapping[str, Any]] = {}  # trial's job -> parameter -> value
        self._file = MetricsFile(self._run_dir / "metrics.csv")
        withdrawn: dict[str, int] = {}  # job -> its last epoch that counts, if it trained no further since
        for event in () if trials is None else read_journal(self._run_dir / "journal.jsonl"):
            if isinstance(event, (events.Decided, events.Ahead)):
                self._learn(event)
            elif isinstance(event, events.Withdrawn):
                withdrawn[event.job] = event.epoch
            elif isinstance(event, events.Epoch) and event.job in withdrawn:
                withdrawn[event.job] = max(withdrawn[event.job], event.epoch)
        for job, epoch in withdrawn.items():
            self._drop(job, epoch)
        self._tensorboard = tensorboard
        self._writers: dict[str, EventFile] = {}
        self._steps: dict[str, int] = {}

    def on_started(self, event: events.Started) -> None:
        self._steps[event.job] = event.step

    def on_epoch(self, event: events.Epoch) -> None:
        for write in (self._row, self._scalars):
            try:
                write(event)
            except OSError as error:
                self._warn(error, event.job)

    def on_withdrawn(self, event: events.Withdrawn) -> None:
        self._drop(event.job, event.epoch)

    def on_stopped(self, event: events.Stopped | events.Paused) -> None:
        self._leave(event.job)

    on_paused = on_stopped

    def on_done(self, event: events.Done | events.Failed) -> None:
        """Tell TensorBoard that a trial is done, or has failed."""
        if event.job in self._writers and event.job in self._values:
            with suppress(OSError):
                failed = isinstance(event, events.Failed)
                self._writers[event.job].tell(end_of_trial(failed, event.unix), event.unix)
        self._leave(event.job)

    on_failed = on_done

    def on_search(self, event: events.Decided) -> None:
        self._learn(event)

    def on_ahead(self, event: events.Ahead) -> None:
        self._learn(event)

    def close(self) -> None:
        """Close the TensorBoard files; a second call does nothing."""
        for job in list(self._writers):
            self._leave(job)

    def _drop(self, job: str, epoch: int) -> None:
        try:
            self._file.drop(job, epoch)
        except OSError as error:
            self._warn(error, job)

    def _leave(self, job: str) -> None:
        if job in self._writers:
            with suppress(OSError):  # each epoch's values were written at once
                self._writers.pop(job).close()

    def _learn(self, event: events.Decided | events.Ahead) -> None:
        """Note the values with which a trial begins, be it before it is needed, or goes on from another one."""
        copy = event.copy if isinstance(event, events.Decided) else None
        values = event.values if copy is None else copy.values
        if self._trials is not None and values:
            self._values[event.job] = self._trials.row(values)

    def _warn(self, error: OSError, job: str) -> None:
        self._leave(job)
        what = f"{error.filename or 'metrics for other tools'} cannot be written: {error.strerror}"
        warnings.warn(f"{what}; the journal has the metrics, and the run goes on", stacklevel=2)

    def _row(self, event: events.Epoch) -> None:
        rate = "" if event.rate is None else str(event.rate)
        row = {"epoch": str(event.epoch), "step": str(event.step), "rate": rate}
        row |= {"job": event.job, "time": str(event.t), "devices": " ".join(map(str, event.devices))}
        known = event.metrics.items()
        metrics = {name: "" if value != value else str(value) for name, value in known}  # NaN is no value
        values = self._values.get(event.job, {})
        self._file.put(row, metrics, {name: told(values[name]) if name in values else "" for name in self._columns})

    def _scalars(self, event: events.Epoch) -> None:
        writer = self._writer(event.job, event.unix)
        if writer is None:
            return
        values = {**event.metrics, "rate": event.rate, "learning_rate": event.learning_rate}
        known = {name: float(value) for name, value in values.items() if value is not None}
        writer.put(known, event.step, event.unix)

    def _tell_values(self, job: str, unix: float) -> None:
        if self._trials is None or job not in self._values:
            return
        tag = tag_of(self._trials.metric)
        for summary in begin_of_trial(job, self._values[job], self._columns, tag, unix):
            self._writers[job].tell(summary, unix)

    def _writer(self, job: str, unix: float) -> EventFile | None:
        if self._tensorboard and job not in self._writers:
            directory = self._run_dir / "tensorboard" / folder_of(job)
            try:
                # What an earlier session wrote past the step from which this one goes on is trained again: hide it.
                self._writers[job] = EventFile(directory, self._steps.get(job, 0) + 1)
                self._tell_values(job, unix)
            except ImportError:
                self._tensorboard = False
                warnings.warn("no TensorBoard files are written: pip install tensorboard", stacklevel=2)
        return self._writers.get(job)


def told(value: Any) -> str:
    """A parameter's value in a cell: texts as they are, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def folder_of(job: str) -> str:
    """A job's name as the name of one folder: a slash or a leading dot cannot lead out of the run's directory."""
    name = quote(job, safe=" ()[]=,+@") or "%"
    return f"%2E{name[1:]}" if name.startswith(".") else name
