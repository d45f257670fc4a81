"""Whether more or less of a metric is better: who declares it, where nobody does, and the one order that follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.journal.metric_order import Comparing, MetricOrder, Undeclared
from fleet.report.analysis import best_network
from fleet.report.run_history import build_history
from fleet.spec import EnsembleSpec, SpecError, check, spec_hash
from fleet.spec.directions import compared_by, directions, recorded_directions
from tests.journals import as_events

MODULE = """
import torch, torchmetrics
from torch import nn
from trainers.zoo import MLP
def wer(outputs, targets): return 1.0, 1.0
def told(outputs, targets): return 1.0, 1.0
told.better = "lower"
class Own(torchmetrics.Metric):
    higher_is_better = True
    full_state_update = False
    def __init__(self):
        super().__init__(); self.add_state("total", torch.tensor(0.0), "sum")
    def update(self, outputs, targets): self.total += 1
    def compute(self): return self.total
class Bare:
    def model(self): return MLP()
    def optimizer(self, model): return torch.optim.SGD(model.parameters(), 0.1)
    def dataset(self, train): return [(torch.zeros(1, 28, 28), 0)]
class Task(Bare):
    better = {"wer": "lower", "score": "higher"}
    def metrics(self, model, batch): return {"wer": (0.0, 1.0), "score": (0.0, 1.0), "other": (0.0, 1.0)}
class Objects(Bare):
    metrics = {"own": Own(), "plain": wer}
"""
DIGITS = {
    part: {"source": "preprocess:DrawnDigits", "arguments": {"train": part == "train"}}
    for part in ("train", "held_out")
}
SGD = {"name": "SGD", "arguments": {"lr": 0.1}}


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "directed.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def spec(metrics: list[Any], stop: dict[str, Any] | None = None, **more: Any) -> EnsembleSpec:
    job = {"name": "j", "model": "trainers.zoo:MLP", "data": "d", "optimizer": SGD, "metrics": metrics}
    jobs = [{**job, "stop": {"epochs": 2, **(stop or {})}}]
    return EnsembleSpec.from_mapping({"name": "s", "data": {"d": DIGITS}, "jobs": jobs, **more})


def of_task(task: str, stop: dict[str, Any], *metrics: Any) -> EnsembleSpec:
    job = {"name": "j", "task": f"directed:{task}", "stop": {"epochs": 2, **stop}, "metrics": list(metrics)}
    return EnsembleSpec.from_mapping({"name": "s", "jobs": [job]})


def searched(metric: Any, mode: Any = None, **more: Any) -> EnsembleSpec:
    metrics = ["accuracy", "directed:wer", "directed:told"]
    job = {"model": "trainers.zoo:MLP", "data": "d", "optimizer": SGD, "metrics": metrics, "stop": {"epochs": 2}}
    section = {
        "name": "t-{trial}", "job": job, "over": {"seed": {"choice": [0, 1]}}, "sampler": "grid", "width": 1,
        "metric": metric, "mode": mode,
    }  # fmt: skip
    return EnsembleSpec.from_mapping({"name": "s", "data": {"d": DIGITS}, "search": section, **more})


WER = {"name": "wer", "of": "directed:wer"}


@pytest.mark.parametrize(
    ("metrics", "stop", "more"),
    [
        (["directed:wer"], {"target": {"wer": 0.1}}, {}),
        (["directed:wer"], {"patience": 1, "monitor": "wer"}, {}),
        (["directed:wer"], {}, {"checkpoints": {"best": "wer"}}),
        ([WER], {"target": {"wer": 0.1}}, {}),
    ],
)
def test_where_nobody_declares_a_direction_that_is_needed_the_spec_is_refused(
    metrics: list[Any], stop: dict[str, Any], more: dict[str, Any]
) -> None:
    (problem,) = check(spec(metrics, stop, **more))
    assert "nobody declares whether more or less of 'wer' is better" in problem.rule
    assert "{name: wer, of: 'directed:wer', better: lower}" in problem.mend
    declared: list[Any] = [{**WER, "better": "lower"}]
    assert not check(spec(declared, stop, **more))


@pytest.mark.parametrize(
    ("entry", "direction"),
    [
        ("accuracy", "higher"),
        ("mean_absolute_error", "lower"),
        ("auroc", "higher"),
        ("word_error_rate", "lower"),
        ("directed:told", "lower"),
        ("directed:Own", "higher"),
        ("torchmetrics.text:WordErrorRate", "lower"),
        ("torchmetrics:F1Score", "higher"),
        ({**WER, "better": "lower"}, "lower"),
        ({"name": "mine", "of": "auroc"}, "higher"),
        ("directed:wer", None),
    ],
)
def test_who_declares_a_direction(entry: Any, direction: str | None) -> None:
    made = spec([entry])
    name = entry["name"] if isinstance(entry, dict) else entry.rpartition(":")[2]
    assert directions(made, made.jobs[0]).get(name) == direction


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"name": "accuracy", "better": "lower"}, "lower is said to be better of accuracy, and higher is"),
        ({**WER, "better": "up"}, "better"),
        ({**WER, "betr": "lower"}, "unknown key 'betr'"),
        ({"of": "directed:wer"}, "required key name is missing"),
    ],
)
def test_entries_that_contradict_or_are_misspelt_are_refused(entry: Any, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        spec([entry])


@pytest.mark.parametrize("metrics", [["accuracy", {**WER, "name": "accuracy"}], ["directed:wer", WER]])
def test_two_metrics_of_one_name_are_refused(metrics: list[Any]) -> None:
    with pytest.raises(SpecError, match="two metrics are called"):
        spec(metrics)


@pytest.mark.parametrize("name", ["loss", "test_loss", "validation_loss", "epoch", "job", "rate", "time"])
def test_names_that_results_have_already_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"results have a {name} already"):
        spec([{**WER, "name": name}])


def test_a_task_class_declares_for_its_own_metrics() -> None:
    assert not check(of_task("Task", {"target": {"wer": 0.1, "score": 2.0}}))
    (problem,) = check(of_task("Task", {"target": {"other": 0.1}}))
    assert 'let the task class have better = {"other": "lower"}' in problem.mend
    assert not check(of_task("Task", {"target": {"other": 0.1}}, {"name": "other", "better": "lower"}))
    assert not check(of_task("Objects", {"target": {"own": 1.0}}))
    assert [problem.path for problem in check(of_task("Objects", {"target": {"plain": 1.0}}))] == [
        "jobs[0].stop.target.plain"
    ]
    assert not check(of_task("Bare", {"target": {"accuracy": 1.0}}))
    with pytest.raises(SpecError, match="not together with task"):
        of_task("Task", {}, "accuracy")


def test_a_search_goes_by_what_is_declared() -> None:
    assert searched("told").search.maximise is False  # type: ignore[union-attr]
    assert searched("wer", "min").search.maximise is False  # type: ignore[union-attr]
    assert not check(searched("wer", "min"))
    with pytest.raises(SpecError, match="nobody declares whether more or less of 'wer' is better"):
        assert searched("wer").search.maximise is None  # type: ignore[union-attr]
    (problem,) = check(searched("wer"))
    assert (problem.path, problem.value) == ("search.metric", "wer")


@pytest.mark.parametrize(("metric", "mode", "nearest"), [("accuracy", "min", "max"), ("told", "max", "min")])
def test_a_mode_that_contradicts_a_metric_is_refused(metric: str, mode: str, nearest: str) -> None:
    (problem,) = check(searched(metric, mode, checkpoints={"best": metric}))
    assert (problem.path, problem.suggestion) == ("search.mode", nearest)


def test_a_mode_is_a_declaration_for_best_checkpoints_too() -> None:
    made = searched("wer", "min", checkpoints={"best": "wer"})
    assert not check(made) and compared_by(made) == ("wer", "lower")


def test_jobs_that_contradict_each_other_are_refused() -> None:
    job = {"model": "trainers.zoo:MLP", "data": "d", "optimizer": SGD, "stop": {"epochs": 1}}
    jobs = [{"name": n, **job, "metrics": [{**WER, "better": n}]} for n in ("higher", "lower")]
    whole = {"name": "s", "data": {"d": DIGITS}, "jobs": jobs, "checkpoints": {"best": "wer"}}
    (problem,) = check(EnsembleSpec.from_mapping(whole))
    assert problem.rule == "more of wer is better in job higher, and less in job lower"


def test_a_direction_changes_nothing_that_a_run_goes_on_with() -> None:
    plain = spec_hash(spec(["accuracy", "directed:wer"]))
    assert spec_hash(spec(["accuracy", {**WER, "better": "lower"}])) == plain
    assert spec_hash(spec(["accuracy", {**WER, "name": "error"}])) != plain


def test_what_a_run_writes_down() -> None:
    made = spec(["accuracy", {**WER, "better": "lower"}], {"target": {"wer": 0.1}})
    assert recorded_directions(made, made.jobs[0]) == {"accuracy": "higher", "wer": "lower"}
    assert compared_by(made) == ("wer", "lower") and compared_by(spec(["accuracy"])) is None
    assert compared_by(spec(["accuracy"], checkpoints={"best": "accuracy"})) == ("accuracy", "higher")


def lines(**session: Any) -> list[dict[str, Any]]:
    better = {"wer": "lower", "recall": "higher"}
    epochs = [("a", 1, 0.2, 0.9), ("a", 2, 0.4, 0.1), ("b", 1, 0.3, 0.5), ("b", 2, 0.3, 0.6)]
    return [
        {"t": 0.0, "event": "session", **session},
        *({"t": 0.0, "event": "job", "job": job, "better": better} for job in "ab"),
        *(
            {"t": 1.0, "event": "epoch", "job": j, "epoch": e, "devices": [0], "metrics": {"wer": w, "recall": r}}
            for j, e, w, r in epochs
        ),
    ]


def test_networks_are_compared_as_the_journal_says() -> None:
    told = lines(compared_by=["wer", "lower"])
    best = best_network(build_history(as_events(told)))
    assert best is not None and (best.job, best.value) == ("a", 0.2)
    search = {"t": 0.0, "event": "bounds", "time": 0, "width": 1, "metric": "recall", "mode": "max"}
    best = best_network(build_history(as_events([*told, search])))
    assert best is not None and (best.job, best.metric, best.value) == ("b", "recall", 0.6), (
        "by last values, as searches"
    )
    found = Comparing.of(as_events([*told, search]))
    assert found.order("wer") == MetricOrder("wer", False) and found.order("recall") == MetricOrder(
        "recall", True, True
    )


def test_journals_that_told_no_directions_are_asked_about() -> None:
    old = Comparing.of(as_events([{"event": "session"}, {"event": "job", "job": "a"}]))
    assert old.metric(["loss", "wer", "accuracy"]) == "accuracy" and old.order("accuracy").higher
    with pytest.raises(Undeclared, match="say --better higher or lower"):
        old.order("wer")
    assert old.order("wer", "lower") == MetricOrder("wer", False)


VALUES = st.lists(st.one_of(st.none(), st.just(float("nan")), st.floats(-1, 1)), max_size=6)


@given(st.lists(VALUES, max_size=6), st.booleans(), st.booleans())
def test_the_order_is_total_and_no_value_is_none(rows: list[list[Any]], higher: bool, last: bool) -> None:
    order = MetricOrder("m", higher, last)
    counted = [order.value(row) for row in rows]
    for row, found in zip(rows, counted):
        known = [value for value in row if value is not None and value == value]
        assert (found is None) == (not known)
        if found is not None:
            assert found[0] == (known[-1] if last else (max if higher else min)(known)) and row[found[1]] == found[0]
    ranked = order.ranked([found for found in counted if found], lambda found: found[0])
    assert [found[0] for found in ranked] == sorted((found[0] for found in counted if found), reverse=higher)
