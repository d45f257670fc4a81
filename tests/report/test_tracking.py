"""metrics.csv and TensorBoard files, within one session and over several."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import list_session_groups
from tensorboard.plugins.hparams.api_pb2 import AGGREGATION_AVG, ListSessionGroupsRequest, Status
from tensorboard.plugins.hparams.backend_context import Context

from fleet.report.tracking import Tracking, folder_of
from fleet.search.space import TrialColumns
from fleet.spec import SearchSpec
from tests.journals import as_event
from tests.search.support.sections import spec_of

Event = dict[str, Any]


def epoch(job: str, number: int, t: float = 1.0, **metrics: float) -> Event:
    step = 10 * (number + 1)
    return {
        "event": "epoch",
        "t": t,
        "unix": 1.7e9 + t,
        "job": job,
        "epoch": number,
        "step": step,
        "devices": [0, 2],
        "rate": 50.5,
        "learning_rate": 0.1,
        "metrics": metrics,
    }


def rows(run_dir: Path) -> list[dict[str, str]]:
    with open(run_dir / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def scalars(run_dir: Path, job: str, name: str) -> list[tuple[int, float]]:
    accumulator = EventAccumulator(str(run_dir / "tensorboard" / folder_of(job)))
    accumulator.Reload()
    return [(point.step, point.value) for point in accumulator.Scalars(name)]


def track(run_dir: Path, *events: Event, tensorboard: bool = False) -> None:
    tracking = Tracking(run_dir, tensorboard)
    for event in events:
        tracking.take(as_event(event))
    tracking.close()


def test_rows_are_appended_as_epochs_end(tmp_path: Path) -> None:
    tracking = Tracking(tmp_path, tensorboard=False)
    tracking.take(as_event(epoch("a", 0, t=3.0, loss=2.0, accuracy=0.5)))
    inode = (tmp_path / "metrics.csv").stat().st_ino
    tracking.take(as_event(epoch("b, with comma", 0, loss=1.0, accuracy=0.5)))
    assert (tmp_path / "metrics.csv").stat().st_ino == inode
    first, second = rows(tmp_path)
    assert first == {
        "job": "a",
        "epoch": "0",
        "step": "10",
        "time": "3.0",
        "loss": "2.0",
        "accuracy": "0.5",
        "rate": "50.5",
        "devices": "0 2",
    }
    assert second["job"] == "b, with comma"


def test_a_new_metric_becomes_a_column_and_names_do_not_collide(tmp_path: Path) -> None:
    track(tmp_path, epoch("a", 0, loss=2.0), epoch("b", 0, loss=1.0, rate=7.0), epoch("a", 1, loss=1.5))
    assert [(row["loss"], row["metrics.rate"], row["rate"]) for row in rows(tmp_path)] == [
        ("2.0", "", "50.5"),
        ("1.0", "7.0", "50.5"),
        ("1.5", "", "50.5"),
    ]


def test_going_on_adds_no_row_twice_and_the_later_wins(tmp_path: Path) -> None:
    track(tmp_path, epoch("a", 0, loss=2.0), epoch("a", 1, loss=1.0), epoch("b", 0, loss=3.0))
    track(tmp_path, epoch("a", 1, loss=0.5), epoch("a", 2, loss=0.25))
    found = sorted((row["job"], row["epoch"], row["loss"]) for row in rows(tmp_path))
    assert found == [("a", "0", "2.0"), ("a", "1", "0.5"), ("a", "2", "0.25"), ("b", "0", "3.0")]


def test_epochs_that_are_taken_back_leave_no_row(tmp_path: Path) -> None:
    taken: Event = {"event": "withdrawn", "job": "a", "epoch": 0, "checkpoint": None, "unused": 1}
    track(tmp_path, epoch("a", 0, loss=2.0), epoch("a", 1, loss=1.0), epoch("b", 1, loss=3.0), taken)
    assert [(row["job"], row["epoch"]) for row in rows(tmp_path)] == [("a", "0"), ("b", "1")]
    track(tmp_path, epoch("a", 1, loss=0.5))
    assert [row["loss"] for row in rows(tmp_path) if row["job"] == "a"] == ["2.0", "0.5"]


def test_a_session_that_ended_before_it_took_rows_out_leaves_that_to_the_next(tmp_path: Path) -> None:
    search = spec_of(trials=4).search
    assert search is not None
    taken = {"trial": 0, "metrics": {}, "checkpoint": None, "unused": 1}
    lines = [epoch("a", 1, loss=2.0), epoch("a", 2, loss=1.0)]
    lines.append({"event": "withdrawn", "t": 3.0, "job": "a", "epoch": 1, **taken})
    track(tmp_path, *lines[:2])
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Tracking(tmp_path, False, TrialColumns.of(search)).close()
    assert [row["epoch"] for row in rows(tmp_path)] == ["1"]


def test_a_torn_last_row_is_dropped(tmp_path: Path) -> None:
    track(tmp_path, epoch("a", 0, loss=2.0))
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("a,1,20,9.")
    track(tmp_path, epoch("a", 2, loss=1.0))
    assert [row["epoch"] for row in rows(tmp_path)] == ["0", "2"]


def test_a_foreign_metrics_file_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("something,else\n1,2\n")
    track(tmp_path, epoch("a", 0, loss=2.0))
    assert (tmp_path / "metrics.csv.old").read_text() == "something,else\n1,2\n"
    assert len(rows(tmp_path)) == 1


def test_tensorboard_holds_every_metric_once_also_after_going_on(tmp_path: Path) -> None:
    started: Event = {"event": "started", "job": "a/b", "epoch": 0, "step": 0}
    first = (started, epoch("a/b", 0, loss=2.0), epoch("a/b", 1, loss=1.0))
    track(tmp_path, *first, tensorboard=True)
    second = ({**started, "epoch": 1, "step": 10}, epoch("a/b", 1, loss=0.5), epoch("a/b", 2, loss=0.25))
    track(tmp_path, *second, {"event": "done", "job": "a/b"}, tensorboard=True)
    assert scalars(tmp_path, "a/b", "loss") == [(10, 2.0), (20, 0.5), (30, 0.25)]
    assert [step for step, _ in scalars(tmp_path, "a/b", "rate")] == [10, 20, 30]
    assert [step for step, _ in scalars(tmp_path, "a/b", "learning_rate")] == [10, 20, 30]


def test_without_tensorboard_the_rows_are_written_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    with pytest.warns(UserWarning, match="pip install tensorboard"):
        track(tmp_path, epoch("a", 0, loss=2.0), epoch("a", 1, loss=1.0), tensorboard=True)
    assert len(rows(tmp_path)) == 2


@pytest.mark.parametrize("job", ["..", ".", "", "../../etc", "/root", "a/../b", "x\x00y", "plain-1"])
def test_no_name_leads_out_of_the_run(tmp_path: Path, job: str) -> None:
    path = (tmp_path / folder_of(job)).resolve()
    assert path.parent == tmp_path.resolve()
    assert "\x00" not in str(path)


def test_a_whole_run(simulated: Callable[..., list[Event]], tmp_path: Path) -> None:
    events = simulated(jobs=6, failing=(2,), killed_after=30)
    track(tmp_path, *events)
    pairs = [(row["job"], row["epoch"]) for row in rows(tmp_path)]
    expected = {(event["job"], str(event["epoch"])) for event in events if event["event"] == "epoch"}
    assert len(pairs) == len(set(pairs)) and set(pairs) == expected


def search_lines(*jobs: str) -> list[Event]:
    values = {"optimizer.arguments.lr": 0.01, "model.arguments.widths": [8, 16]}
    begun = {"t": 0.0, "unix": 1.7e9, "event": "search", "kind": "start", "values": values}
    begun |= {"start": 0, "end": 1, "time": 0, "cost": 1}
    return [{**begun, "job": job, "trial": trial} for trial, job in enumerate(jobs)]


SEARCH = spec_of(
    over={
        "optimizer.arguments.lr": {"log_uniform": [0.001, 0.1]},
        "model.arguments.widths": {"blocks": {"count": [1, 3], "each": {"choice": [8, 16]}}},
    }
).search
VALUES = {
    "model.arguments.widths#0": "8", "model.arguments.widths#1": "16", "model.arguments.widths#2": "",
    "model.arguments.widths#count": "2", "optimizer.arguments.lr": "0.01",
}  # fmt: skip


def columns_of(search: SearchSpec | None) -> TrialColumns:
    assert search is not None
    return TrialColumns.of(search)


def searched(run_dir: Path, *events: Event, tensorboard: bool = False) -> None:
    """What a session of a run with a search writes."""
    tracking = Tracking(run_dir, tensorboard, columns_of(SEARCH))
    for event in events:
        tracking.take(as_event(event))
    tracking.close()


def test_rows_of_trials_have_their_values(tmp_path: Path) -> None:
    searched(tmp_path, *search_lines("t"), epoch("t", 0, loss=2.0), epoch("plain", 0, loss=1.0))
    trial, plain = rows(tmp_path)
    assert {name: trial[name] for name in VALUES} == VALUES
    assert {plain[name] for name in VALUES} == {""} and plain["loss"] == "1.0"
    names = list(trial)
    assert names[:4] == ["job", "epoch", "step", "time"] and names[-2:] == ["rate", "devices"]


def test_a_trial_has_its_values_before_the_search_begins_it(tmp_path: Path) -> None:
    """It may train ahead of need: the line that says so has them, and a later one of it need not."""
    (begun,) = search_lines("t")
    ahead = {"t": 0.0, "unix": 1.7e9, "event": "ahead", "job": "t", "trial": 0, "start": 0, "end": 1, "epoch": 1}
    searched(tmp_path, {**ahead, "values": begun["values"]}, epoch("t", 0, loss=2.0), {**ahead, "start": 1, "end": 3})
    (row,) = rows(tmp_path)
    assert {name: row[name] for name in VALUES} == VALUES


def test_a_later_session_knows_the_values_of_earlier_trials(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in search_lines("t")))
    searched(tmp_path, epoch("t", 1, loss=2.0))
    (row,) = rows(tmp_path)
    assert {name: row[name] for name in VALUES} == VALUES


def test_a_parameter_that_is_called_like_a_metric_has_another_column(tmp_path: Path) -> None:
    search = spec_of(over={"seed": {"choice": [1, 2]}, "step": {"choice": ["a", "b"]}}).search
    tracking = Tracking(tmp_path, False, columns_of(search))
    tracking.take(
        as_event({"event": "search", "kind": "start", "job": "t", "trial": 0, "values": {"seed": 2, "step": "b"}})
    )
    tracking.take(as_event(epoch("t", 0, seed=0.5)))
    tracking.close()
    (row,) = rows(tmp_path)
    assert (row["seed"], row["values.seed"], row["step"], row["values.step"]) == ("0.5", "2", "10", "b")


def test_tensorboard_shows_the_values_and_the_metric_of_each_trial(tmp_path: Path) -> None:
    ended = [{"event": "done", "job": "good", "unix": 1.7e9}, {"event": "failed", "job": "bad", "unix": 1.7e9}]
    lines = [*search_lines("good", "bad"), epoch("good", 0, loss=1.5), epoch("bad", 0, loss=9.0), *ended]
    searched(tmp_path, *lines, tensorboard=True)
    found = {session.name: session for session in hparams_of(tmp_path / "tensorboard")}
    assert set(found) == {"good", "bad"}
    good = found["good"]
    assert good.hparams["optimizer.arguments.lr"].number_value == 0.01
    assert good.hparams["model.arguments.widths#1"].number_value == 16
    assert "model.arguments.widths#2" not in good.hparams
    assert [(value.name.tag, value.value) for session in good.sessions for value in session.metric_values] == [
        ("loss", 1.5)
    ]
    assert [session.status for session in good.sessions] == [Status.Value("STATUS_SUCCESS")]
    assert [session.status for session in found["bad"].sessions] == [Status.Value("STATUS_FAILURE")]


def hparams_of(logs: Path) -> list[Any]:
    """What the plugin's own backend finds there: one group for each trial."""
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(logs))
    multiplexer.Reload()
    backend = Context(TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(logs))))
    known = RequestContext()
    experiment = backend.experiment_from_metadata(known, "", True, backend.hparams_metadata(known, ""), None)
    asked = ListSessionGroupsRequest(
        allowed_statuses=list(Status.values()), slice_size=10, aggregation_type=AGGREGATION_AVG
    )
    assert [info.name.tag for info in experiment.metric_infos] == ["loss"]
    return list(list_session_groups.Handler(known, backend, "", asked).run().session_groups)
