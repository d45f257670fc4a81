"""Networks trained on the rig have the CPU's bits, however late its streams run."""

from __future__ import annotations

import pytest

from tests.device.rig import RANDOM, SCHEDULES, Rig

ALL = [*SCHEDULES, *RANDOM]
EQUAL = [-1.0] * len(ALL)
MODELS = (
    "perceptron", "convolutions", "MLP", "CNN", "ResNet", "DenseNet", "transformer", "transformer without dropout",
    "attention", "words",
)  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_a_network_has_the_cpu_s_bits(rig: Rig, model: str) -> None:
    assert rig.call("bits.furthest", model, "SGD", ALL, False) == EQUAL


@pytest.mark.parametrize("optimizer", ["AdamW", "Adam", "Adagrad", "RMSprop", "Adadelta"])
def test_an_optimizer_has_the_cpu_s_bits(rig: Rig, optimizer: str) -> None:
    assert rig.call("bits.furthest", "perceptron", optimizer, ["both-late"], False) == [-1.0]


def test_mixed_precision_has_the_cpu_s_bits(rig: Rig) -> None:
    assert rig.call("bits.furthest", "CNN", "SGD", ["both-late"], True) == [-1.0]


@pytest.mark.parametrize("model", ["LSTM", "GRU"])
def test_recurrent_cells_are_near_the_cpu_s_and_the_same_in_every_schedule(rig: Rig, model: str) -> None:
    """torch's cells for accelerators add in another order than those for CPUs."""
    assert rig.call("bits.furthest", model, "SGD", ["prompt"], False)[0] < 1e-6
    assert rig.call("bits.same_in_schedules", model, ALL)


def test_tensors_can_be_what_they_are_elsewhere(rig: Rig) -> None:
    told = rig.call("bits.other_things")
    assert told == dict.fromkeys(told, True)
