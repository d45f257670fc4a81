"""One number that makes probabilities less sure, fitted on half of the samples."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import nll_loss
from typer.testing import CliRunner

from fleet.commands.cli import app
from fleet.models.vote import MOST, Figures, fitted_temperature, halves, scaled
from tests.live.support import parts
from tests.live.support.ensembles import RunFolder
from tests.models.support.held_out_arrays import held_out_arrays


def likeliest(probabilities: Tensor, targets: Tensor) -> float:
    """The temperature as a general minimiser finds it."""
    logs = probabilities.double().log()
    found = minimize_scalar(
        lambda log: float(nll_loss((logs / torch.tensor(log).exp()).log_softmax(dim=1), targets)),
        bounds=(-4.6, 4.6), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    return float(torch.tensor(found.x).exp())


def test_a_temperature_is_the_likeliest() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4000, 6, generator=generator) * 2
    targets = torch.multinomial(logits.softmax(dim=1), 1, generator=generator).squeeze(1)
    for factor in (0.4, 1.0, 3.0):
        sure = (logits * factor).softmax(dim=1)
        temperature = fitted_temperature(sure, targets)
        assert temperature == pytest.approx(factor, rel=0.06), "the targets were drawn at temperature 1 of the logits"
        assert temperature == pytest.approx(likeliest(sure, targets), rel=1e-5)
        assert torch.allclose(
            scaled(sure, temperature), (logits.double() * factor / temperature).softmax(dim=1), atol=1e-5
        )
        assert torch.equal(scaled(sure, temperature).argmax(dim=1), sure.argmax(dim=1))


def test_probabilities_without_a_likeliest_temperature_get_a_bound() -> None:
    wrong = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    assert fitted_temperature(wrong, torch.tensor([1, 0])) == pytest.approx(MOST)
    assert fitted_temperature(torch.eye(2), torch.tensor([1, 0])) == pytest.approx(MOST)


def test_it_is_fitted_on_one_half_and_judged_on_the_other(trained: RunFolder, tmp_path: Path) -> None:
    own, file = tmp_path / "own.h5", tmp_path / "p.h5"
    assert CliRunner().invoke(app, ["predict", str(trained.path), "--out", str(own)]).exit_code == 0
    with h5py.File(own) as written:
        answers = written["ensemble"][()].argmax(axis=1)
    answers[::2] = (answers[::2] + 1) % parts.CLASSES
    np.savez(tmp_path / "half-right.npz", inputs=held_out_arrays()[0], targets=answers)
    words = ["predict", str(trained.path), "--temperature", "--data", str(tmp_path / "half-right.npz")]
    done = CliRunner().invoke(app, [*words, "--out", str(file), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    first, second = halves(27)
    assert (told["samples"], told["chosen_on"]) == (len(second), len(first))
    with h5py.File(file) as written:
        targets = torch.from_numpy(written["targets"][()])
        together = torch.from_numpy(written["members"][()]).double().mean(dim=0)
    temperature = likeliest(together[first], targets[first])
    found = told["scaled"]["ensemble"]
    assert 0.02 < temperature < 50 and found["temperature"] == pytest.approx(temperature, rel=1e-4)
    expected = Figures.of(scaled(together[second], temperature), targets[second])
    assert found["nll"] == pytest.approx(expected.nll, abs=1e-5) and found["accuracy"] == told["ensemble"]["accuracy"]
    assert told["scaled"]["members"].keys() == told["members"].keys()
    table = CliRunner().invoke(app, words).output
    assert "temperatures were fitted on the other 13" in table and "temperature     nll" in table


def test_shares_of_answers_have_no_temperature(trained: RunFolder) -> None:
    done = CliRunner().invoke(app, ["predict", str(trained.path), "--temperature", "--vote", "hard"])
    assert done.exit_code == 2 and "--vote hard gives shares of answers; leave one of them out" in done.output
