"""Whether a network is trained on samples that are held out from it, however people divide them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.numbered.fleet_runs import fleet, write_spec
from benchmarks.numbered.ways_to_split import REFUSED, SAMPLES, STEADY, TRAINED, Section, Split

_MODULE = "benchmarks.numbered.ways_to_split"


def bars() -> list[dict[str, Any]]:
    """Run a network for each of the ways; those that no run can make the same have to be refused."""
    clean = _trained()
    refused = [kind.__name__ for kind in REFUSED if _is_refused(kind)]
    ways = len(STEADY) + len(REFUSED)
    good = len(clean) + len(refused)
    return [
        {"name": "ways to split without a held-out sample trained on", "value": good, "bar": f"{ways} of {ways}",
         "ok": good == ways},
        {"name": "of them trained on all other samples", "value": len(clean), "bar": f"{len(STEADY)}",
         "ok": len(clean) == len(STEADY)},
        {"name": "of them refused by name, with the mend", "value": len(refused), "bar": f"{len(REFUSED)}",
         "ok": len(refused) == len(REFUSED)},
    ]  # fmt: skip


def _spec(kinds: tuple[type[Split], ...]) -> dict[str, Any]:
    part = {"source": f"{_MODULE}:Part"}
    held_out = {**part, "arguments": {"train": False}}
    jobs = [
        {"name": kind.__name__, "task": f"{_MODULE}:{kind.__name__}", "batch_size": 8, "stop": {"epochs": 1}}
        | ({"data": "section"} if kind is Section else {})
        for kind in kinds
    ]
    return {
        "name": "splits", "seed": 3, "data": {"section": {"train": part, "held_out": held_out}}, "jobs": jobs,
        "resources": {"trainers": 1, "device": "cpu", "preprocessors": 2},
    }  # fmt: skip


def _trained() -> list[str]:
    """The names of those that trained on all samples that are not held out, and on no other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ended = fleet(folder, "run", write_spec(folder, _spec(STEADY)), "--out", "r")
        if ended.code:
            print(ended.output)
        return [kind.__name__ for kind in STEADY if _is_clean(folder, kind.__name__)]


def _is_clean(folder: Path, kind: str) -> bool:
    files = [folder / f"{kind}.{part}" for part in ("train", "held")]
    if not all(file.exists() for file in files):
        return False
    trained, held_out = ({int(number) for number in file.read_text().split()} for file in files)
    return len(trained) == TRAINED and len(held_out) == SAMPLES - TRAINED and not trained & held_out


def _is_refused(kind: type[Split]) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ended = fleet(folder, "run", write_spec(folder, _spec((kind,))), "--out", "r")
        told = " ".join(ended.output.split())
        trained = (folder / f"{kind.__name__}.train").exists()
        return ended.code == 2 and kind.__name__ in told and "seed" in told and not trained
