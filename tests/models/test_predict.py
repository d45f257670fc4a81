"""Networks predict together: each sample is read once, and figures are those of plain loops."""

from __future__ import annotations

import json
import math
import shutil
from itertools import combinations
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

import fleet
from benchmarks.torchmetrics_figures import differences, figures
from fleet.commands.cli import app
from fleet.journal.metric_order import MetricOrder
from fleet.models.members import read_members
from fleet.models.validation_data import held_out_of
from fleet.models.vote import Figures, disagreement, diversity, greedy_counts, greedy_picks, halves
from preprocess import Dataset
from preprocess.samples.order import HELD_OUT
from tests.live.support import parts
from tests.live.support.ensembles import RunFolder

NAMES = ("mlp", "cnn", "resnet", "fixed", "reached")


def predict(*words: object) -> Result:
    return CliRunner().invoke(app, ["predict", *(str(word) for word in words)])


def told(*words: object) -> dict[str, Any]:
    done = predict(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def plain_figures(rows: list[list[float]], targets: list[int]) -> dict[str, float]:
    """The figures by their definitions, sample by sample and bin by bin."""
    right, nll, brier = 0, 0.0, 0.0
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, target in zip(rows, targets):
        answer = max(range(len(row)), key=lambda each: (row[each], -each))
        right += answer == target
        nll -= math.log(row[target])
        brier += sum((value - (each == target)) ** 2 for each, value in enumerate(row))
        bins.setdefault(min(math.floor(row[answer] * 15), 15), []).append((row[answer], answer == target))
    ece = sum(abs(sum(hit - confidence for confidence, hit in each)) for each in bins.values())
    count = len(targets)
    return {"accuracy": right / count, "nll": nll / count, "brier": brier / count, "ece": ece / count}


def close(given: dict[str, float], expected: dict[str, float]) -> bool:
    return all(abs(given[name] - value) < 1e-6 for name, value in expected.items())


@pytest.fixture
def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities (4 networks, 500 samples, 7 classes), and targets."""
    generator = torch.Generator().manual_seed(5)
    members = torch.rand(4, 500, 7, generator=generator).mul(6).softmax(dim=2)
    return members, torch.randint(0, 7, (500,), generator=generator)


def test_figures_are_those_of_plain_loops(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    members, targets = drawn
    for each in members:
        assert close(Figures.of(each, targets).to_json(), plain_figures(each.tolist(), targets.tolist()))
    sure = torch.eye(7)[targets]
    assert Figures.of(sure, targets).to_json() == {"accuracy": 1.0, "nll": 0.0, "brier": 0.0, "ece": 0.0}
    wrong = Figures.of(sure, (targets + 1) % 7)
    assert (wrong.accuracy, wrong.brier, wrong.ece) == (0.0, 2.0, 1.0) and 80 < wrong.nll < 90


def test_figures_are_those_of_torchmetrics(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    members, targets = drawn
    for each in members:
        assert close(Figures.of(each, targets).to_json(), figures(each, targets))
    even = torch.full((4,), 0.25, dtype=torch.float64)
    told = {"disagreement": disagreement(members.argmax(dim=2)), "diversity": diversity(members, even)}
    assert close(told, differences(list(members), members.double().mean(dim=0)))


def test_networks_that_differ_are_told_apart(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    members, weights = drawn[0], torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
    answers = members.argmax(dim=2)
    pairs = [
        sum(a != b for a, b in zip(answers[one].tolist(), answers[two].tolist())) / 500
        for one, two in combinations(range(4), 2)
    ]
    assert abs(disagreement(answers) - sum(pairs) / len(pairs)) < 1e-12
    entropy = lambda row: -sum(value * math.log(value) for value in row)
    expected = 0.0
    for sample in range(500):
        rows = members[:, sample].double()
        mean = (rows * weights[:, None]).sum(dim=0).tolist()
        expected += entropy(mean) - sum(w * entropy(row) for w, row in zip(weights.tolist(), rows.tolist()))
    assert abs(diversity(members, weights) - expected / 500) < 1e-9
    same = members[:1].expand(3, -1, -1)
    assert disagreement(same.argmax(dim=2)) == 0.0 and diversity(same, torch.full((3,), 1 / 3).double()) < 1e-9


def test_picks_are_those_of_trying_all(drawn: tuple[torch.Tensor, torch.Tensor]) -> None:
    own = drawn[0].double()[:, torch.arange(500), drawn[1]]
    picked: list[int] = []
    for _ in range(6):
        tried = [sum(own[each] for each in [*picked, one]) / (len(picked) + 1) for one in range(4)]  # type: ignore[misc]
        picked.append(max(range(4), key=lambda one: float(torch.as_tensor(tried[one]).log().mean())))
    assert greedy_counts(own, 6) == [picked.count(one) for one in range(4)] and len(set(picked)) > 1
    first, second = halves(101)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(101)) and len(first) == 50
    assert greedy_picks("best:3") is None and greedy_picks("greedy:3") == 3


def test_members_have_the_figures_of_their_run(trained: RunFolder, tmp_path: Path) -> None:
    file = tmp_path / "p.h5"
    found = told(trained.path, "--out", file)
    assert tuple(found["members"]) == NAMES and found["samples"] == parts.HELD_OUT
    members = read_members(trained.path)
    for name, told_of_it in found["members"].items():
        best = members.of(name).best(MetricOrder("accuracy", True))
        assert best is not None and told_of_it["accuracy"] == pytest.approx(best.value, abs=1e-12)
    with h5py.File(file) as written:
        targets, each, together = written["targets"][:], written["members"][:], written["ensemble"][:]
        assert [name.decode() for name in written["names"][:]] == list(NAMES)
    pictures = parts.Pictures(train=False)
    assert targets.tolist() == [pictures[i][1] for i in range(len(pictures))]
    assert np.allclose(together, each.mean(axis=0), atol=1e-6) and list(tmp_path.iterdir()) == [file]
    for index, name in enumerate(NAMES):
        assert close(found["members"][name], plain_figures(each[index].tolist(), targets.tolist()))
    assert close(found["ensemble"], plain_figures(each.mean(axis=0, dtype=float).tolist(), targets.tolist()))
    inputs = torch.stack([torch.from_numpy(pictures[i][0]) for i in range(len(pictures))])
    assert torch.allclose(fleet.load(trained.path)(inputs), torch.from_numpy(together), atol=1e-6)


def test_each_sample_is_made_once(trained: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    make = Dataset.make

    def counted(self: Dataset, kind: str, seed: int, epoch: int, sample: int, *views: Any, **own: Any) -> int:
        assert kind == HELD_OUT
        made.append(sample)
        return make(self, kind, seed, epoch, sample, *views, **own)

    monkeypatch.setattr(Dataset, "make", counted)
    assert len(told(trained.path)["members"]) == 5
    assert made == list(range(parts.HELD_OUT))


def test_networks_can_be_chosen_and_vote(trained: RunFolder) -> None:
    assert len(told(trained.path, "--members", "best:2")["members"]) == 2
    hard = told(trained.path, "--members", "mlp,cnn,resnet", "--vote", "hard")
    assert tuple(hard["members"]) == NAMES[:3] and 0 <= hard["ensemble"]["accuracy"] <= 1
    greedy = told(trained.path, "--members", "greedy:4")
    assert sum(greedy["weights"].values()) == pytest.approx(1) and greedy["weights"].keys() == greedy["members"].keys()
    assert (greedy["samples"], greedy["chosen_on"]) == (14, 13)
    table = predict(trained.path, "--members", "greedy:4").output
    assert "all together" in table and "chosen on the other 13" in table


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--members", "mpl"), "did you mean mlp"),
        (("--members", "greedy:none"), "greedy:K with a whole number"),
        (("--data", "pictures2"), "has no such data set"),
        (("--device", "nowhere"), "cannot be moved to device nowhere"),
    ],
)
def test_what_cannot_be_predicted_is_told_in_words(trained: RunFolder, words: tuple[str, ...], text: str) -> None:
    done = predict(trained.path, *words)
    assert done.exit_code == 2 and text in done.output, done.output


def test_networks_that_share_no_classes_or_samples_are_refused(trained: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained.path, folder)
    file = folder / "ensemble.json"
    content = json.loads(file.read_text())
    spec = content["spec"]
    jobs = {job["name"]: job for job in spec["jobs"]}
    own = jobs["cnn"]["data"]
    spec["data"]["other"] = spec["data"][own]
    jobs["cnn"]["data"] = "other"
    jobs["mlp"]["loss"] = {"name": "mse_loss", "arguments": {}}
    file.write_text(json.dumps(content))
    for words, text in (
        ((), "mlp (mse_loss) are no class probabilities"),
        (("--members", "cnn,resnet"), "do not share one data set"),
    ):
        done = predict(folder, *words)
        assert done.exit_code == 2 and text in done.output, done.output
    assert len(told(folder, "--members", "cnn,resnet", "--data", own)["members"]) == 2


def test_samples_end_where_they_are_told_to(trained: RunFolder) -> None:
    members = read_members(trained.path)
    asked: list[int] = []

    def each() -> None:
        asked.append(1)
        if len(asked) == 6:
            raise TimeoutError

    batches = held_out_of(members.spec, [members.all[0].job]).batches(2, each)
    assert [len(next(batches)[0]), len(next(batches)[0])] == [2, 2]
    with pytest.raises(TimeoutError):
        next(batches)
