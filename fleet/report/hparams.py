"""What TensorBoard's plugin for hyper-parameters reads of a trial: its values, the metric, how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
