"""One network of several networks' mean weights, beside their ensemble."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from typer.testing import CliRunner, Result

from fleet.commands.cli import app
from fleet.models.load import Ensemble
from fleet.models.members import read_members
from fleet.models.network import TrainedNetwork, read_network, soup_of
from fleet.models.vote import Figures, halves
from tests.live.support.ensembles import RunFolder
from tests.models.support.held_out_arrays import held_out_arrays

ALIKE = ("fixed", "reached")


def predict(run_folder: RunFolder, *words: object) -> Result:
    return CliRunner().invoke(app, ["predict", str(run_folder.path), *(str(word) for word in words)])


def told(run_folder: RunFolder, *words: object) -> dict[str, Any]:
    done = predict(run_folder, "--members", ",".join(ALIKE), *words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def networks_of(run_folder: RunFolder, *names: str) -> list[TrainedNetwork]:
    found = read_members(run_folder.path)
    return [read_network(found.of(name), found.spec) for name in names]


def probabilities(run_folder: RunFolder, states: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    """What a network with the mean of these weights says of the held-out pictures."""
    (network,) = networks_of(run_folder, ALIKE[0])
    mean = {name: sum(state[name].double() for state in states) / len(states) for name in states[0]}
    network.model.load_state_dict({name: value.float() for name, value in mean.items()})  # type: ignore[union-attr]
    job = read_members(run_folder.path).of(ALIKE[0]).job
    with torch.no_grad():
        return Ensemble([network], [job])(torch.from_numpy(held_out_arrays()[0]))


def test_a_soup_has_mean_weights_and_mean_running_statistics(trained: RunFolder) -> None:
    (network,) = networks_of(trained, "cnn")
    other = copy.deepcopy(network.model)
    with torch.no_grad():
        for tensor in [*other.parameters(), *other.buffers()]:
            tensor.add_(2)
    soup = soup_of([network, replace(network, name="other", model=other)])
    before, after = network.model.state_dict(), soup.network.model.state_dict()
    counts = [name for name, value in before.items() if not value.is_floating_point()]
    assert counts and soup.members == ("cnn", "other")
    assert all(torch.equal(after[name], before[name]) for name in counts)
    assert all(torch.allclose(after[name], before[name] + 1) for name in before.keys() - counts)
    statistics = {name for name, _ in network.model.named_buffers()} - set(counts)
    assert statistics and set(soup.averaged_buffers) == statistics


def test_a_uniform_soup_stands_beside_the_ensemble(trained: RunFolder, tmp_path: Path) -> None:
    file = tmp_path / "p.h5"
    found = told(trained, "--soup", "uniform", "--out", file)
    rows = probabilities(trained, [each.model.state_dict() for each in networks_of(trained, *ALIKE)])
    with h5py.File(file) as written:
        assert torch.allclose(torch.from_numpy(written["soup"][()]), rows, atol=1e-6)
        assert written["members"].shape[0] == 2
    figures = Figures.of(rows, torch.from_numpy(held_out_arrays()[1])).to_json()
    assert {name: found["soup"][name] for name in figures} == pytest.approx(figures, abs=1e-5)
    assert found["soup"]["members"] == list(ALIKE) and found["samples"] == 27
    alone = told(trained)
    assert (found["members"], found["ensemble"]) == (alone["members"], alone["ensemble"])
    assert (
        "soup: the mean of the weights of fixed, reached"
        in predict(trained, "--members", ",".join(ALIKE), "--soup", "uniform").output
    )


def test_a_greedy_soup_keeps_what_makes_it_no_worse_on_one_half(trained: RunFolder) -> None:
    found = told(trained, "--soup", "greedy", "--temperature")
    first, second = halves(27)
    targets = torch.from_numpy(held_out_arrays()[1])
    states = [each.model.state_dict() for each in networks_of(trained, *ALIKE)]

    def accuracy(members: list[int]) -> float:
        rows = probabilities(trained, [states[each] for each in members])[first]
        return float((rows.argmax(dim=1) == targets[first]).double().mean())

    order = sorted((0, 1), key=lambda each: -accuracy([each]))
    kept = [order[0]] + ([order[1]] if accuracy(order) >= accuracy(order[:1]) else [])
    assert found["soup"]["members"] == [ALIKE[each] for each in kept]
    assert (found["samples"], found["chosen_on"]) == (len(second), len(first))
    rows = probabilities(trained, [states[each] for each in kept])[second]
    assert found["soup"]["nll"] == pytest.approx(Figures.of(rows, targets[second]).nll, abs=1e-5)
    assert found["scaled"]["soup"]["temperature"] > 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--soup", "uniform"), "4 architectures, data or losses"),
        (("--soup", "uniform"), "name those of one: --members fixed,reached"),
        (("--soup", "greedy", "--members", "mlp,cnn"), "no two alike"),
        (("--soup", "uniform", "--members", "mlp"), "--soup needs two networks or more"),
        (("--soup", "uniform", "--members", "greedy:3"), "take --soup greedy"),
    ],
)
def test_what_cannot_be_averaged_is_told_with_the_mend(trained: RunFolder, words: tuple[str, ...], text: str) -> None:
    done = predict(trained, *words)
    assert done.exit_code == 2 and text in done.output, done.output
