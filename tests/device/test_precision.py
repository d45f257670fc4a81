"""TF32 as it is asked for: in torch's switches while a network trains, in its checkpoint's pins, at its next start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.device.rig import Rig
from tests.device.test_runs import ON_ITS_OWN
from tests.live.support.ensembles import write_ensemble
from tests.live.support.processes import FLEET, run
from trainers import Float32, read

TOLD = """
import json, torch
from tests.gpu.device_tasks import Convolutions
from trainers.repeatable.determinism import float32_on
print("a plain script has", float32_on(torch.device("cuda")))
torch.set_float32_matmul_precision("medium")
class Told(Convolutions):
    def after_step(self, model):
        b = torch.backends
        switches = (b.cuda.matmul, b.cudnn, b.cudnn.conv, b.cudnn.rnn, b, b.mkldnn.matmul)
        newer = [each.fp32_precision for each in switches]
        older = [b.cuda.matmul.allow_tf32, b.cudnn.allow_tf32, torch.get_float32_matmul_precision()]
        print("switches", json.dumps([newer, older]))
"""
ASKED: dict[str, Mapping[str, str]] = {"torch's": {}, "others": {"matmul": "tf32", "convolutions": "ieee"}}
FOUND = {
    "torch's": [["ieee", "tf32", "tf32", "tf32", "ieee", "ieee"], [False, True, "highest"]],
    "others": [["tf32", "ieee", "ieee", "ieee", "ieee", "ieee"], [True, False, "high"]],
}
PINNED = {"torch's": ("False", "tf32"), "others": ("True", "ieee")}
JOB = ("told:Told", "--virtual-workers", "2")


def switches(output: str) -> list[Any]:
    said = [line.partition("switches ")[2] for line in output.splitlines() if "switches " in line]
    return [json.loads(line) for line in dict.fromkeys(said)]


def pinned(path: Path) -> tuple[str, str]:
    pins = read(path).pins
    return pins["tf32"], pins["convolutions"]


def words(asked: Mapping[str, str]) -> list[str]:
    return [word for name, value in asked.items() for word in (f"--{name}", value)]


@pytest.fixture(scope="module")
def folder(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints that `fleet train` made as it was asked, and what it said."""
    made = tmp_path_factory.mktemp("precision")
    (made / "told.py").write_text(TOLD)
    for (name, asked), trainers in zip(ASKED.items(), "12"):
        options = ["--steps", "2", "--checkpoint", f"{name}.h5", "--trainers", trainers, *words(asked)]
        command = [*FLEET, "train", *JOB, *options]
        ended = run(command, made, **rig.variables, **ON_ITS_OWN)
        assert ended.code == 0, ended.output
        (made / f"{name}.out").write_text(ended.output)
    return made


@pytest.mark.parametrize("name", ASKED)
def test_a_job_trains_as_asked(folder: Path, name: str) -> None:
    assert switches((folder / f"{name}.out").read_text()) == [FOUND[name]]
    assert pinned(folder / f"{name}.h5") == PINNED[name]


def test_without_a_word_precision_is_a_plain_script_s(folder: Path) -> None:
    assert f"a plain script has {Float32()}" in (folder / "torch's.out").read_text()


def test_a_job_goes_on_only_as_it_began(rig: Rig, folder: Path) -> None:
    command = [*FLEET, "train", *JOB, "--trainers", "1", "--steps", "3", "--checkpoint", "next.h5"]
    command += ["--resume", "others.h5"]
    refused = run(command, folder, **rig.variables, **ON_ITS_OWN)
    assert (
        refused.code == 2
        and "convolutions was ieee and is tf32; tf32 of matmul was True and is False" in refused.output
    )
    ended = run([*command, *words(ASKED["others"])], folder, **rig.variables, **ON_ITS_OWN)
    assert ended.code == 0 and pinned(folder / "next.h5") == PINNED["others"], ended.output


def test_a_comparison_shows_the_setting(rig: Rig, folder: Path) -> None:
    ended = run([*FLEET, "compare", "torch's.h5", "others.h5"], folder, **rig.variables)
    assert ended.code == 0, "the rig has no TF32"
    assert "tf32" in ended.output and "convolutions" in ended.output


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_the_yardstick_trains_as_asked(rig: Rig, folder: Path, name: str) -> None:
    command = [*FLEET, "train", *JOB, "--steps", "1", "--ddp", "--checkpoint", "ddp.h5"]
    ended = run([*command, *words(ASKED[name])], folder, **rig.variables)
    assert ended.code == 0 and switches(ended.output) == [FOUND[name]], ended.output
    assert pinned(folder / "ddp.h5") == PINNED[name]


@pytest.mark.parametrize("name", ["others", pytest.param("torch's", marks=pytest.mark.slow)])
def test_a_run_trains_as_asked_and_goes_on_only_so(rig: Rig, tmp_path: Path, name: str) -> None:
    job = {"name": "told", "task": "told:Told", "virtual_workers": 2, "stop": {"epochs": 1}}
    sections: dict[str, Any] = {"data": {}, "defaults": {}, "determinism": dict(ASKED[name])}
    made = write_ensemble(tmp_path, [job], resources={"device": "auto"}, **sections)
    (tmp_path / "told.py").write_text(TOLD)
    command = made.plain("run", "--trainers", "1")
    ended = run(command, tmp_path, **rig.variables, **ON_ITS_OWN)
    assert ended.code == 0 and switches(ended.output) == [FOUND[name]], ended.output
    assert pinned(Path(made.left("run").summary["jobs"]["told"]["checkpoint"])) == PINNED[name]
    other = "ieee" if ASKED[name] else "tf32"
    refused = run([*command, "--set", f"determinism.matmul={other}"], tmp_path, **rig.variables, **ON_ITS_OWN)
    assert refused.code == 2 and "another spec:\n  determinism.matmul: " in refused.output, refused.output
