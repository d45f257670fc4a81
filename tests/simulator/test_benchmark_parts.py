"""Every part of the benchmark of simulations is called, and a part without its data says so."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import simulate
from benchmarks.simulated.part import Part

FOLDER = Path(simulate.__file__).parent / "simulated"


def modules() -> dict[str, bool]:
    """The modules beside `part`, and whether they measure something."""
    return {path.stem: "\ndef measure(" in path.read_text() for path in FOLDER.glob("[!_]*.py")}


def test_every_part_is_called() -> None:
    assert {name for name, measures in modules().items() if measures} <= set(simulate.PARTS)


@pytest.mark.parametrize("name", [name for name in simulate.PARTS if name in modules()])
def test_a_part_is_called_as_all_are(name: str) -> None:
    measure = import_module(f"benchmarks.simulated.{name}").measure
    assert list(inspect.signature(measure).parameters) == ["part", "repetitions"]


def test_a_part_that_fails_misses_a_bar_and_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Parts:
        """Two parts: one fails after its first figure, the other does not."""

        @staticmethod
        def measure(part: Part, repetitions: int) -> None:
            part.bar("answer", 42, "42", True)
            if repetitions:
                raise ValueError("no such trace")

    monkeypatch.setattr(simulate, "PARTS", ("pollux",))
    monkeypatch.setattr(simulate, "import_module", lambda name: Parts)
    good, bad = simulate.main(0), simulate.main(1)
    assert [(bar["name"], bar["ok"]) for bar in good["bars"]] == [("pollux: answer", True)]
    assert [bar["ok"] for bar in bad["bars"]] == [True, False]
    assert bad["notes"] == ["pollux: it ended early: ValueError: no such trace"]


def test_a_part_that_is_not_there_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "PARTS", ("nothing",))
    assert simulate.main() | {"seconds": {}} == {
        "bars": [], "tables": [], "notes": ["nothing: it is not part of this version"], "seconds": {},
    }  # fmt: skip
