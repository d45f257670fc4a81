"""Trackers: TensorBoard and Weights & Biases in folders, one of one's own, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import fleet.report
from fleet.report import Point, StoreError, TrackedEnsemble, TrackedRun, Tracker
from fleet.report.trackers import TensorBoard, WeightsAndBiases
from fleet.spec.plugins import TRACKERS, BadPart

IDENTITY = "0123456789abcdef"


class Lines(Tracker):
    """A file for each run, a line for each value."""

    def known(self, run: TrackedRun) -> Collection[tuple[str, int]] | None:
        if not self._file(run).exists():
            return None
        values = map(json.loads, self._file(run).read_text().splitlines())
        return {(value["metric"], value["step"]) for value in values}

    def log(self, run: TrackedRun, new: Sequence[Point]) -> None:
        with self._file(run).open("a") as file:
            file.writelines(json.dumps(vars(point)) + "\n" for point in new)

    def _file(self, run: TrackedRun) -> Path:
        return Path(self.uri, f"{self.experiment}-{run.job}.jsonl")


class Half(Tracker):
    """Cannot say what it knows."""

    def log(self, run: TrackedRun, new: Sequence[Point]) -> None: ...


def network(job: str, epochs: int, ended: bool = False) -> TrackedRun:
    points = tuple(Point("loss", 1.0 / epoch, 10 * epoch, 1000 * epoch) for epoch in range(1, epochs + 1))
    return TrackedRun(
        name=job,
        job=job,
        identity=IDENTITY,
        status="FINISHED" if ended else "RUNNING",
        begin=500,
        end=9000 if ended else None,
        parameters={"optimizer.arguments.lr": "0.01"},
        points=points,
        tags={"fleet.status": "done" if ended else "running"},
    )


def ensemble(*networks: TrackedRun) -> TrackedEnsemble:
    done = sum(each.status == "FINISHED" for each in networks)
    points = tuple(Point("networks_done", float(n), n, 9000) for n in range(1, done + 1))
    over = TrackedRun("small", "", IDENTITY, "RUNNING", begin=400, points=points)
    return TrackedEnsemble("small", "running", over, networks)


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    read = EventAccumulator(str(folder))
    read.Reload()
    return [(value.step, value.value) for value in read.Scalars(name)]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_public() -> None:
    assert {"Point", "StoreError", "TrackedEnsemble", "TrackedRun", "Tracker"} == {*dir(fleet.report)}
    methods = {name for name, value in vars(Tracker).items() if callable(value) and not name.startswith("_")}
    assert len(methods) <= 6 and Tracker.__abstractmethods__ == {"known", "log"}


def test_a_tracker_is_told_what_is_new_and_nothing_twice(tmp_path: Path) -> None:
    first = TRACKERS.make("own", Lines, (str(tmp_path), None), {})
    waiting = replace(network("later", 0), begin=None, status="SCHEDULED")
    told = first.tell(ensemble(network("a", 1), waiting))
    assert (told.runs, told.points) == (2, 1), "all networks together, and the one that has begun"
    assert first.tell(ensemble(network("a", 1), waiting)) == type(told)()
    second = Lines(str(tmp_path))
    told = second.tell(ensemble(network("a", 3, ended=True)))
    assert (told.runs, told.points) == (0, 3), "two values of the network, and one of all"
    lines = [json.loads(line) for line in (tmp_path / "small-a.jsonl").read_text().splitlines()]
    assert [(line["step"], line["value"]) for line in lines] == [(10, 1.0), (20, 0.5), (30, 1 / 3)]


def test_a_store_that_fails_may_succeed_later(tmp_path: Path) -> None:
    tracker = Lines(str(tmp_path / "later"), "named")
    with pytest.raises(StoreError, match="mend that, or name another by --uri"):
        tracker.tell(ensemble(network("a", 1)))
    (tmp_path / "later").mkdir()
    assert tracker.tell(ensemble(network("a", 1))).points == 1
    assert (tmp_path / "later" / "named-a.jsonl").is_file()


def test_tensorboard_has_curves_also_of_several_calls(tmp_path: Path) -> None:
    for epochs, ended in ((1, False), (2, False), (3, True)):
        tracker = TensorBoard(str(tmp_path))
        told = tracker.tell(ensemble(network("a/b", epochs, ended)))
        tracker.close()
        assert (told.runs, told.points) == (2 if epochs == 1 else 0, 1 + ended)
    folder = tmp_path / "small" / IDENTITY[:12]
    assert scalars(folder / "a%2Fb", "loss") == [(10, 1.0), (20, 0.5), (30, pytest.approx(1 / 3))]
    assert scalars(folder / "all", "networks_done") == [(1, 1.0)]
    before = content(tmp_path)
    assert TensorBoard(str(tmp_path)).tell(ensemble(network("a/b", 3, True))).points == 0
    assert content(tmp_path) == before


def test_tensorboard_has_the_parameters_of_each_network(tmp_path: Path) -> None:
    tracker = TensorBoard(str(tmp_path), "named")
    tracker.tell(ensemble(network("a", 2, ended=True)))
    tracker.close()
    read = EventAccumulator(str(tmp_path / "named" / IDENTITY[:12] / "a"))
    read.Reload()
    told = read.PluginTagToContent("hparams")
    assert {*told} == {"_hparams_/session_start_info", "_hparams_/session_end_info"}
    assert b"optimizer.arguments.lr" in told["_hparams_/session_start_info"]


def test_weights_and_biases_has_a_run_for_each_network(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    tracker = WeightsAndBiases(str(tmp_path))
    assert tracker.tell(ensemble(network("a", 1), network("b", 2, ended=True))).points == 4
    assert tracker.tell(ensemble(network("a", 2), network("b", 2, ended=True))).points == 1
    tracker.close()
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 3 and all(b"small" in file.read_bytes() for file in files)
    assert sum(b"optimizer" in file.read_bytes() for file in files) == 2
    assert WeightsAndBiases(str(tmp_path)).tell(ensemble(network("a", 2), network("b", 2, ended=True))).points == 0
    assert sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")) == files


@pytest.mark.parametrize(
    "name, said",
    [
        ("mlfow", "'mlfow' is not a tracker; there are mlflow, tensorboard, wandb.*nearest: mlflow"),
        ("tests.report.test_trackers:Halff", "nearest: tests.report.test_trackers:Half"),
        ("tests.report.test_trackers:Half", r"has no method known \(.*`def known\(self, run: TrackedRun\) -> Coll"),
        ("tests.report.test_trackers:IDENTITY", "is of type str and cannot be called"),
    ],
)
def test_what_is_no_tracker_is_refused_with_what_is_missing(name: str, said: str) -> None:
    with pytest.raises(BadPart, match=said):
        TRACKERS.make(name, TRACKERS.load(name), (None, None), {})
