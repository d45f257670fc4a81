"""A stopping rule of one's own works live, where the run goes on, and in `fleet simulate`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.live.search.conftest import SEARCH
from tests.live.support.ensembles import RunFolder, pictures, write_ensemble
from tests.live.support.processes import FLEET, run

MODEL = {"name": "parts:Faulty", "arguments": {"fault": "raise", "picture": 500}}  # there is no such picture
RULE = """
from fleet.search import Segment, StoppingRule


class Odd(StoppingRule):
    '''Of each two trials the second stops after an epoch.'''

    def __init__(self, epochs, stopped=1):
        self.epochs, self.stopped, self.ready = epochs, stopped, []

    def first(self, trial):
        return Segment(trial, 0, 1)

    def report(self, trial, epoch, loss):
        if loss is None:
            return "fail"
        if epoch == self.epochs:
            return "done"
        if trial % 2 == self.stopped:
            return "stop"
        self.ready.append(Segment(trial, epoch, self.epochs))

    def next(self, fresh, trials=None):
        return self.ready.pop(0) if self.ready else None if fresh is None else self.first(fresh)
"""


def epochs(folder: RunFolder) -> list[int]:
    return [trial["epochs"] for trial in folder.summary["search"]["trials"]]


def test_a_rule_of_ones_own_live_resumed_and_simulated(tmp_path: Path) -> None:
    asked = {**SEARCH, "over": {"optimizer.arguments.lr": {"log_uniform": [0.001, 0.1]}}, "trials": 4, "width": 2}
    asked |= {"job": {"model": MODEL, "stop": {"epochs": 3}}, "stopping": {"name": "odd:Odd"}}
    ensemble = write_ensemble(
        tmp_path,
        [],
        data={"pictures": pictures()},
        measured=False,
        search=asked,
        policy={"name": "local"},
        ensemble=False,
    )
    (tmp_path / "odd.py").write_text(RULE)
    folder = ensemble.left("own")
    ended = run(ensemble.plain("own", "--set", "search.trials=2"), tmp_path)
    assert ended.code == 0 and epochs(folder) == [3, 1], ended.output
    ended = run(ensemble.plain("own"), tmp_path)
    assert ended.code == 0 and epochs(folder) == [3, 1, 3, 1], ended.output
    told = run(
        [*FLEET, "simulate", "--search", str(folder.path), "--stopping", "odd:Odd:stopped=0", "--json"], tmp_path
    )
    assert told.code == 0, told.output
    content = json.loads(told.output[told.output.index("{") :])
    assert content["recorded"]["decisions"] == folder.summary["search"]["decisions"]
    assert content["runs"][0]["stopping"] == "odd:Odd:stopped=0"
    wrong = run(ensemble.plain("other", "--set", "search.stopping=odd:Odds"), tmp_path)
    assert wrong.code == 2 and "Odd" in wrong.output and "Traceback" not in wrong.output
