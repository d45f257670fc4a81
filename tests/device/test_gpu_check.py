"""`python -m benchmarks gpu_check` on the rig: what it measures, how it ends, what it keeps."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import shown
from benchmarks.gpu import kept
from benchmarks.gpu.found_device import FoundDevice
from benchmarks.gpu.measuring import MODULES, measured
from benchmarks.gpu.part import Given, GpuPart
from benchmarks.gpu.step_times import hold
from benchmarks.gpu_check import WEIGHTS
from tests.device.rig import ROOT, Rig
from tests.docs.support.pages import Page, keys
from tests.live.support.processes import Ended, run

COMMAND = [sys.executable, "-m", "benchmarks", "gpu_check"]
LIMIT_SECONDS = 1500.0
DEVICE = FoundDevice("cuda", "Maker's A/100 80GB", 1, 80 << 30, {"torch": "2.13.0"})


def checked(rig: Rig, folder: Path, *words: str, **variables: str) -> Ended:
    return run([*COMMAND, "--device", "rig", *words], folder, LIMIT_SECONDS, **rig.variables, **variables)


def told(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.output[ended.output.index("\n{\n") :])
    return found


def part(**figures: Any) -> dict[str, Any]:
    empty = {"status": "done", "words": "", "seconds": 1.5, "bars": [], "tables": [], "notes": []}
    return {**empty, **figures}


def test_steps_are_timed_and_nothing_of_the_rig_is_kept(rig: Rig, tmp_path: Path) -> None:
    before = sorted(kept.FOLDER.glob("*"))
    ended = checked(rig, tmp_path, "--parts", "steps", "--seconds", "120", "--json")
    found = told(ended)
    one, four = ([row[:2] for row in table["rows"]] for table in found["parts"]["steps"]["tables"])
    each = [[network, how] for network in ("small ResNet", "small BERT") for how in ("fp32", "TF32", "bf16")]
    assert one == four == each and ended.code == 0
    assert "figures of the rig are no figures of a GPU: nothing is kept" in found["notes"]
    assert sorted(kept.FOLDER.glob("*")) == before


@pytest.mark.slow
def test_what_fails_is_told_and_leaves_the_others(rig: Rig, tmp_path: Path) -> None:
    """On a device with too little memory."""
    variables = {"RIG_MEGABYTES": "0.25", "RIG_DEVICES": "1"}
    ended = checked(rig, tmp_path, "--parts", "figure-13,several", "--seconds", "120", "--json", **variables)
    assert ended.code == 1
    found = told(ended)
    assert [bar["name"] for bar in found["bars"] if not bar["ok"]] == ["figure-13: small BERT runs"]
    assert any(note.startswith("figure-13: small BERT: ") and "Error: " in note for note in found["notes"])
    several = found["parts"]["several"]
    assert (several["status"], several["words"]) == (
        "skipped",
        "there is one device; several send gradients to each other",
    )


def test_a_part_ends_in_its_time(rig: Rig, tmp_path: Path) -> None:
    ended = checked(rig, tmp_path, "--parts", "doctor,steps", "--seconds", "0.4", "--json")
    assert ended.code == 1
    assert {name: each["status"] for name, each in told(ended)["parts"].items()} == {
        "doctor": "out of time", "steps": "out of time",
    }  # fmt: skip


def test_a_part_that_leaves_cases_out_is_out_of_time(tmp_path: Path) -> None:
    """It has a minute to end by itself, and none to measure in."""
    given = Given("cpu", 1, 0, small=True, seconds=60.0, until=time.monotonic())
    found = measured("figure-13", given, tmp_path / "log")
    assert (found["status"], found["words"]) == ("out of time", "no time was left for small BERT")


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(("way", "name"), [("ddp", "stock DDP's"), ("loop", "an accumulating loop's")])
@pytest.mark.parametrize(("seconds", "ok"), [(1.05, True), (1.06, False)])
def test_steps_are_held_against_the_ways_beside_them(
    small: bool, way: str, name: str, seconds: float, ok: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a GPU, by the median of runs that took turns; on the rig they would be held against a CPU's noise."""
    found = GpuPart(path=tmp_path / "found.json", given=Given("cuda", 1, 0, small, 60.0, time.monotonic() + 60.0))
    hold(found, "1 BERT fp32", {"loop": [1.0, 2.0, 9.0], way: [1.0, 2.0, 9.0], "fleet": [seconds, 2 * seconds, 5.0]})
    assert [(bar["name"], bar["ok"]) for bar in found.bars] == (
        [] if small else [(f"1 BERT fp32: speed over {name}", ok)]
    )
    shown("gpu_check", {"machine": {"cores": 2, "torch": "2"}, "bars": found.bars})
    printed = capsys.readouterr().out
    assert [word for word in ("ok", "SHORT") if f" {word} " in printed] == ([] if small else ["ok" if ok else "SHORT"])


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "torch sees no accelerator here"),
        (["--parts", "steps,step"], "there is no part 'step'; there are: doctor, digits"),
        (["--device", "cuda"], "leave it out for this machine's GPU, or say rig"),
    ],
)
def test_a_mistake_is_told_in_a_line(tmp_path: Path, words: list[str], said: str) -> None:
    ended = run([*COMMAND, *words], tmp_path, PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="")
    assert ended.code == 2, ended.output
    assert said in ended.output and ended.output.count("\n") == 1


def test_every_part_has_a_share_and_can_be_measured() -> None:
    assert list(WEIGHTS) == list(MODULES)
    assert all(callable(import_module(f"benchmarks.gpu.{module}").measure) for module in MODULES.values())


def test_figures_are_kept_by_device_and_joined_with_earlier_ones(tmp_path: Path) -> None:
    table = {"title": "steps", "columns": ["network", "over"], "rows": [["net|work", 1.25], ["other", "1 (1 to 2)"]]}
    path = kept.keep(DEVICE, "now", {"steps": part(tables=[table]), "doctor": part()}, tmp_path)
    assert path == tmp_path / "Maker-s-A-100-80GB.json"
    kept.keep(DEVICE, "later", {"doctor": part(status="failed", words="it broke")}, tmp_path)
    parts = json.loads(path.read_text())["parts"]
    assert {name: (each["when"], each["status"]) for name, each in parts.items()} == {
        "steps": ("now", "done"), "doctor": ("later", "failed"),
    }  # fmt: skip
    kept.keep(replace(DEVICE, versions={"torch": "2.14.0"}), "last", {"digits": part()}, tmp_path)
    assert list(json.loads(path.read_text())["parts"]) == ["digits"]


def test_tables_take_their_place_in_a_page(tmp_path: Path) -> None:
    page = "before\n<!-- gpu-check -->\nNot run yet.\n<!-- end of gpu-check -->\nafter\n"
    assert kept.filled(page, tmp_path) == page
    table = {"title": "steps", "columns": ["network", "over"], "rows": [["net|work", 1.25]]}
    kept.keep(DEVICE, "now", {"steps": part(tables=[table])}, tmp_path)
    lines = kept.filled(page, tmp_path).splitlines()
    assert lines[0] == "before" and lines[-2:] == ["<!-- end of gpu-check -->", "after"]
    assert "| net\\|work | 1.25 |" in lines and "Not run yet." not in lines
    with pytest.raises(ValueError, match="no place for the tables"):
        kept.filled("nothing", tmp_path)


def test_the_format_is_documented() -> None:
    section = Page(ROOT / "profiles" / "README.md").sections(2)["Of devices"]
    assert keys(section) >= kept.kept(DEVICE, "now", {}, None).keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_parts_end_well_on_the_rig(rig: Rig, tmp_path: Path) -> None:
    ended = checked(rig, tmp_path, "--seconds", "1200", "--json")
    found = told(ended)
    assert [bar["name"] for bar in found["bars"] if not bar["ok"]] == [], ended.output
    assert list(found["parts"]) == list(MODULES) and ended.code == 0
