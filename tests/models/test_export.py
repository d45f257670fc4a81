"""Exported weights are plain torch's, and as good as the run says, to the last bit."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner, Result

from fleet.commands.cli import app
from fleet.journal.metric_order import MetricOrder
from fleet.models.errors import ModelsError
from fleet.models.export import Weights
from fleet.models.members import read_members
from fleet.models.network import read_network
from tests.live.support import parts
from tests.live.support.ensembles import RunFolder
from tests.live.support.processes import FLEET
from tests.models.support import plain
from tests.models.support.families import FAMILIES
from trainers import read

EVALUATION_BATCH = 8  # both virtual workers' samples of a step


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


Exported = dict[str, tuple[Path, dict[str, float]]]
CASES = {f"{which}-{job['name']}": (which, job) for which in ("best", "last") for job in FAMILIES[:3]}


@pytest.fixture(scope="module")
def exported(trained: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """By case, the file, and its figures in a process that knows nothing of fleet."""
    folder, words = tmp_path_factory.mktemp("exported"), [str(EVALUATION_BATCH), str(trained.path.parent)]
    for case, (which, job) in CASES.items():
        file = folder / f"{case}.safetensors"
        done = call("export", trained.path, job["name"], file, "--checkpoint", which)
        assert done.exit_code == 0, done.output
        words += [str(file), job["model"]["name"], json.dumps(job["model"]["arguments"])]
    cold = {name: value for name, value in os.environ.items() if name != "FLEET_WARM"}  # not forked: it has no fleet
    command = [sys.executable, plain.__file__, *words]
    evaluated = subprocess.run(command, capture_output=True, text=True, timeout=120, env=cold)
    assert evaluated.returncode == 0, evaluated.stderr
    found = [{name: float.fromhex(value) for name, value in told.items()} for told in json.loads(evaluated.stdout)]
    return {case: (folder / f"{case}.safetensors", figures) for case, figures in zip(CASES, found, strict=True)}


@pytest.mark.parametrize("case", CASES)
def test_in_plain_torch_the_weights_have_the_figures_of_the_run(
    trained: RunFolder, exported: Exported, case: str
) -> None:
    (file, found), (which, job) = exported[case], CASES[case]
    card = json.loads(file.with_name(f"{file.name}.json").read_text())
    member = read_members(trained.path).of(job["name"])
    epoch = (member.best(MetricOrder("accuracy", True)) if which == "best" else None) or max(member.history)
    assert card["epoch"] == (epoch if isinstance(epoch, int) else epoch.epoch)
    assert card["metrics"] == member.history[card["epoch"]]
    assert found == {name: card["metrics"][name] for name in found}
    with safe_open(file, "pt") as opened:
        assert json.loads(opened.metadata()["fleet"]) == card


def test_others_may_read_the_files_as_any_new_file(trained: RunFolder, tmp_path: Path) -> None:
    words = ["export", trained.path, "mlp", tmp_path / "m.safetensors", "--program", tmp_path / "m.pt2"]
    command = [*FLEET, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=trained.path.parent, umask=0o027)
    assert done.returncode == 0, done.stderr
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("m.safetensors", "m.safetensors.json", "m.pt2"), 0o640)


def test_nothing_is_written_through_a_link_that_somebody_laid(trained: RunFolder, tmp_path: Path) -> None:
    """Be it at the files' own names, or at those that they had while they were written."""
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    out.mkdir()
    files = [out / name for name in ("m.safetensors", "m.safetensors.json", "m.pt2", "p.h5")]
    for file in files:
        for name in (file.name, f".{file.name}.{os.getpid()}", f".{file.name}.partial"):
            file.with_name(name).symlink_to(victim)
    done = call("export", trained.path, "mlp", files[0], "--program", files[2])
    predicted = call("predict", trained.path, "--out", files[3])
    assert done.exit_code == predicted.exit_code == 0, done.output + predicted.output
    assert victim.read_text() == "precious" and victim.stat().st_nlink == 1
    assert all(file.is_file() and not file.is_symlink() for file in files)


def test_tied_tensors_and_buffers_load_too(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm = nn.Embedding(5, 3), nn.BatchNorm1d(3)
            self.out = nn.Linear(3, 5, bias=False)
            self.out.weight = self.embed.weight

    model, other = Tied(), Tied()
    weights = Weights.of(model)
    assert dict(weights.tied) == {"out.weight": "embed.weight"} and "norm.running_mean" in weights.tensors
    from fleet.models.export import write_weights

    write_weights(tmp_path / "tied.safetensors", weights, {"loss": float("nan")})
    other.load_state_dict(load_file(tmp_path / "tied.safetensors"))
    assert torch.equal(other.embed.weight, model.embed.weight)
    assert other.out.weight is other.embed.weight and json.loads((tmp_path / "tied.safetensors.json").read_text())


def test_state_that_is_no_tensor_is_refused() -> None:
    class Noted(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"note": 1}

        def set_extra_state(self, state: Any) -> None:
            pass

    with pytest.raises(ModelsError, match="_extra_state of the network is of type dict"):
        Weights.of(Noted(1, 1))


def test_a_program_runs_without_the_code(trained: RunFolder, tmp_path: Path) -> None:
    done = call("export", trained.path, "cnn", tmp_path / "cnn.pt2")
    assert done.exit_code == 0, done.output
    members = read_members(trained.path)
    network = read_network(members.of("cnn"), members.spec)
    images = torch.rand(7, 1, parts.SIDE, parts.SIDE)
    program = torch.export.load(tmp_path / "cnn.pt2").module()
    assert torch.equal(program(images), network.model(images))


def test_mistakes_are_told_in_words(trained: RunFolder, tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    (tmp_path / "file").touch()
    for words, text in (
        ((trained.path, "cnnn", file), "did you mean cnn?"),
        ((tmp_path, "cnn", file), "holds no run"),
        ((trained.path, "cnn", file, "--checkpoint", "first"), "choose best or last"),
        ((trained.path, "cnn", file, "--program", tmp_path / "cnn.pt"), "end in .pt2"),
        ((trained.path, "cnn", tmp_path / "file" / "weights.safetensors"), "cannot be written"),
    ):
        done = call("export", *words)
        assert done.exit_code == 2 and text in done.output, done.output
    assert not file.exists()


def test_the_kept_checkpoint_is_the_evaluated_one(trained: RunFolder) -> None:
    for member in read_members(trained.path).all:
        best = member.best(MetricOrder("accuracy", True))
        assert best is not None and member.kept is not None and member.kept.best.epoch == best.epoch
        assert read(member.kept.path).history[-1]["accuracy"] == best.value
