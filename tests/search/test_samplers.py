"""What samplers suggest: the same for the same results, and better with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.search import Record, Sampler
from fleet.search.of_spec import search_of, search_problems
from fleet.search.samplers import sampler_of
from fleet.search.space import Parameter, answers_of, parameters, values_of
from fleet.spec import SearchSpec
from fleet.spec.distributions import draw, fraction
from fleet.spec.plugins import BadPart
from tests.search.support.curves import cost, value
from tests.search.support.driving import drive
from tests.search.support.one_digest import digest
from tests.search.support.sections import spec_of

ROOT = Path(__file__).parents[2]
TWO = {"x": {"uniform": [-1.0, 1.0]}, "y": {"log_uniform": [0.001, 1.0]}}


def section(**search: Any) -> SearchSpec:
    found = spec_of(**search).search
    assert found is not None
    return found


def sampler(name: str | dict[str, Any], seed: int = 1, **search: Any) -> Sampler:
    return sampler_of(section(sampler=name, **search), seed)


def bowl(values: Mapping[str, Any]) -> float:
    """Least at x = 0.5, y = 0.01."""
    return float((values["x"] - 0.5) ** 2 + (Parameter("y", "log", 0.001, 1.0).part(values["y"]) - 1 / 3) ** 2)


def learnt(name: str, trials: int) -> list[float]:
    """The bowl's depth at what is suggested one after the other."""
    model, records = sampler(name, over=TWO, prefetch=0), list[Record]()
    for trial in range(trials):
        values = model.suggest(trial, records)
        records.append(Record(trial, values, {9: bowl(values)}, "done"))
    return [record.losses[9] for record in records]


@pytest.mark.parametrize("name", ["random", "qmc", "tpe", "cmaes", "nsga2"])
def test_any_order_of_results_gives_one_list_of_trials(name: str) -> None:
    assert len({digest(name, order) for order in range(3)}) == 1


@pytest.mark.parametrize(
    "name", ["tpe", pytest.param("cmaes", marks=pytest.mark.slow), pytest.param("nsga2", marks=pytest.mark.slow)]
)
def test_another_process_with_other_hashes_suggests_the_same(name: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "tests.search.support.one_digest", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, digest(name, 0)), done.stderr


@pytest.mark.parametrize("name", ["random", "qmc", "tpe", "cmaes", "nsga2"])
def test_another_seed_suggests_something_else(name: str) -> None:
    assert sampler(name).suggest(0, ()) == sampler(name).suggest(0, ())
    assert sampler(name).suggest(0, ()) != sampler(name, seed=2).suggest(0, ())
    assert sampler(name).suggest(0, ()) != sampler(name).suggest(1, ())


@pytest.mark.parametrize(("name", "trials"), [("tpe", 60), ("cmaes", 60), ("gp", 16)])
def test_what_learns_gets_better(name: str, trials: int) -> None:
    depths = learnt(name, trials)
    assert median(depths[-5:]) < 0.3 * median(depths[:10])
    assert median(depths[-5:]) < 0.3 * median(learnt("random", 40))


def test_random_values_are_those_of_samples() -> None:
    search = section(sampler="random")
    for trial in range(5):
        wanted = {path: draw(what, 1, trial, path) for path, what in search.over.items()}
        assert sampler_of(search, 1).suggest(trial, ()) == wanted


def test_a_grid_has_every_combination_once_and_the_last_path_varies_fastest() -> None:
    over = {
        "a": {"choice": ["x", "y"]},
        "b": {"blocks": {"count": [1, 2], "each": {"integer": [1, 2]}}},
        "c": {"elements": [{"choice": [True]}, {"integer": [0, 1]}]},
    }
    grid = sampler("grid", over=over, trials=None)
    found = [grid.suggest(trial, ()) for trial in range(24)]
    assert [each["c"] for each in found[:3]] == [[True, 0], [True, 1], [True, 0]]
    assert [each["b"] for each in found[:12:2]] == [[1], [2], [1, 1], [1, 2], [2, 1], [2, 2]]
    assert len({json.dumps(each) for each in found}) == 24
    with pytest.raises(IndexError, match="none for trial 24"):
        grid.suggest(24, ())


def test_qmc_fills_the_space_evenly() -> None:
    points = [sampler("qmc", over=TWO).suggest(trial, ()) for trial in range(64)]
    cells = Counter((each["x"] >= 0, each["y"] >= 0.001**0.5) for each in points)
    assert cells == {(right, top): 16 for right in (True, False) for top in (True, False)}


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_values_tell_what_was_answered(seed: int) -> None:
    over = section().over
    asked: dict[Parameter, Any] = {}

    def answer(parameter: Parameter) -> Any:
        asked[parameter] = parameter.at(fraction(seed, 0, parameter.name))
        return asked[parameter]

    values = values_of(over, answer)
    assert answers_of(over, values) == asked
    there = [parameter for parameter, _ in parameters(over)]
    assert set(asked) <= set(there)
    assert {parameter for parameter, always in parameters(over) if always} <= set(asked)


def test_parts_of_ranges() -> None:
    whole, log = Parameter("n", "whole", 1, 4), Parameter("l", "log", 0.01, 1.0)
    assert [whole.at(part) for part in (0.0, 0.24, 0.25, 0.99, 1.0)] == [1, 1, 2, 4, 4]
    assert [whole.at(whole.part(value)) for value in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert log.at(0.5) == pytest.approx(0.1) and log.part(0.1) == pytest.approx(0.5)


def test_a_sampler_sees_what_was_known_when_an_earlier_trial_began() -> None:
    seen: dict[int, list[Record]] = {}

    class Seeing:
        prefetch: int | None = 3

        def suggest(self, trial: int, records: Any) -> Mapping[str, Any]:
            seen[trial] = list(records)
            return {}

    from fleet.search import Search
    from fleet.search.to_the_end import Whole

    drive(Search(Whole(1), Seeing(), lambda trial, values: 1, width=1, trials=8), lambda trial, epoch: float(trial))
    known = {trial: [record.trial for record in records if record.losses] for trial, records in seen.items()}
    assert known == {trial: list(range(max(0, trial - 3))) for trial in range(8)}
    assert all(len(records) == trial for trial, records in seen.items())


def test_a_model_is_told_how_trials_stand() -> None:
    spec = spec_of(sampler="tpe", stopping={"name": "halving"}, prefetch=0)
    found = drive(search_of(spec, cost), value)
    records = found._records(39)
    assert {record.status for record in records} == {"done", "paused", "failed", "suggested"}
    assert all(record.losses for record in records if record.status in ("done", "paused"))


def problem(**search: Any) -> tuple[str, str, str | None]:
    (found,) = search_problems(spec_of(**search))
    return found.path, found.rule, found.suggestion


def test_wrong_samplers_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert search_problems(spec_of(sampler="tpe")) == ()
    path, rule, nearest = problem(sampler={"name": "tpe", "arguments": {"n_startup_trails": 5}})
    assert (path, nearest) == ("search.sampler.arguments.n_startup_trails", "n_startup_trials")
    path, rule, _ = problem(sampler={"name": "tpe", "arguments": {"seed": 5}})
    assert path == "search.sampler.arguments.seed" and "that of the search" in rule
    path, rule, _ = problem(sampler={"name": "random", "arguments": {"seeds": 5}})
    assert "random has no argument 'seeds'" in rule
    path, rule, _ = problem(sampler={"name": "cmaes", "arguments": {"sigma0": 2.0}})
    assert "at most 1" in rule
    path, rule, _ = problem(sampler="cmaes", over={"x": {"uniform": [0.0, 1.0]}, "c": {"choice": [1, 2]}})
    assert "two numbers" in rule
    monkeypatch.setitem(sys.modules, "optuna", None)
    path, rule, _ = problem(sampler="tpe")
    assert path == "search.sampler" and "needs the package optuna" in rule


OWN = """
class Halves:
    def __init__(self, over, seed, parts=2):
        self.over, self.parts = over, parts
    def suggest(self, trial, records):
        return {path: trial / self.parts for path in self.over}

class Wrong(Halves):
    def suggest(self, trial, records):
        return {"lr": 1.0}

class Mute:
    def __init__(self, over, seed): pass

class Blind(Halves):
    prefetch = None

class Hasty(Halves):
    def __init__(self, over, seed, parts=2, prefetch=3):
        super().__init__(over, seed, parts)
        self.prefetch = prefetch
"""


def test_a_persons_own_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_halves.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = sampler({"name": "own_halves:Halves", "arguments": {"parts": 4}}, over=TWO, prefetch=7)
    assert own.suggest(2, ()) == {"x": 0.5, "y": 0.5} and own.prefetch == 7
    with pytest.raises(ValueError, match=r"own_halves:Wrong gives \['lr'\] for trial 0"):
        sampler("own_halves:Wrong", over=TWO).suggest(0, ())
    assert [sampler(f"own_halves:{kind}", over=TWO, prefetch=7).prefetch for kind in ("Blind", "Hasty")] == [None, 3]
    for wrong in (-1, 0.5, True):
        told = problem(sampler={"name": "own_halves:Hasty", "arguments": {"prefetch": wrong}})
        assert told[1].startswith(f"own_halves:Hasty has the prefetch {wrong!r}, which is neither")
    assert "no method suggest" in problem(sampler="own_halves:Mute")[1]
    assert problem(sampler="own_halves:Halvs")[2] == "own_halves:Halves"
    assert "no argument 'part'" in problem(sampler={"name": "own_halves:Halves", "arguments": {"part": 4}})[1]
    with pytest.raises(BadPart, match="mute"):
        sampler("mute_nowhere:Mute")


def test_tpe_weighs_each_value_by_itself_unless_it_is_told_otherwise() -> None:
    """Optuna's own default has changed between its versions."""
    records = [Record(trial, {"x": trial / 20 - 1, "y": 0.1}, {1: trial / 40}, "done") for trial in range(40)]
    plain = sampler("tpe", over=TWO).suggest(40, records)
    for arguments, same in (({"multivariate": False}, True), ({"multivariate": True}, False)):
        other = sampler({"name": "tpe", "arguments": arguments}, over=TWO).suggest(40, records)
        assert (other == plain) is same
