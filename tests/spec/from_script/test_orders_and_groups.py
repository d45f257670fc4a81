"""What a script says of its last batch, of a weighted sampler, of groups of parameters and of class weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.spec.from_script.conftest import Begun
from tests.spec.from_script.test_what_scripts_do import of

Init = Callable[..., Begun]

_TRAIN = """
        for epoch in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
"""


def test_drop_last_a_balanced_sampler_and_groups(script: Init) -> None:
    begun = script(
        of(
            """
            data = Rows(62)
            weights = 1.0 / torch.bincount(data.y)[data.y]
            sampler = torch.utils.data.WeightedRandomSampler(weights, len(data))
            loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
            model, loss = Net(width=5), nn.CrossEntropyLoss()
            biases = [weight for weight in model.parameters() if weight.dim() == 1]
            others = [weight for weight in model.parameters() if weight.dim() == 2]
            groups = [{"params": others}, {"params": biases, "weight_decay": 0.0, "lr": 0.5}]
            optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)
            """
            + _TRAIN.replace("\n        ", "\n            ")
        )
    )
    job = begun.job
    assert job.drop_last is True and begun.spec.data["samples"].order.weights == "balanced"
    assert job.optimizer.arguments == {"lr": 0.01, "weight_decay": 0.1}
    (group,) = job.optimizer.groups
    assert group.match == ("*.bias",) and group.options == {"weight_decay": 0.0, "lr": 0.5}


def test_weights_of_classes_in_the_loss_are_written_as_a_list(script: Init) -> None:
    begun = script(
        of(
            """
            loader = DataLoader(Rows(64), batch_size=8, shuffle=True)
            model, loss = Net(width=5), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0]))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """
            + _TRAIN.replace("\n        ", "\n            ")
        )
    )
    assert "weight: [1.0, 2.0, 4.0]" in begun.file.read_text(), begun.output + begun.errors


def test_weights_of_classes_that_are_not_balanced_become_a_function(script: Init) -> None:
    begun = script(
        of(
            """
            data = Rows(64)
            weights = torch.tensor([1.0, 2.0, 3.0])[data.y]
            loader = DataLoader(data, batch_size=8, sampler=torch.utils.data.WeightedRandomSampler(weights, 32))
            model, loss = Net(width=5), nn.CrossEntropyLoss()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """
            + _TRAIN.replace("\n        ", "\n            ")
        )
    )
    assert str(begun.spec.data["samples"].order.weights).endswith("_parts:weights")
    assert "by_class = {0: 1.0, 1: 2.0, 2: 3.0}" in begun.parts
    assert "draws 32 of 64 samples" in begun.output


@pytest.mark.parametrize("weights", ["torch.arange(64.0)"])
def test_weights_of_single_samples_are_left_to_the_person(script: Init, weights: str) -> None:
    begun = script(
        of(
            f"""
            loader = DataLoader(Rows(64), batch_size=8, sampler=torch.utils.data.WeightedRandomSampler({weights}, 64))
            model, loss = Net(width=5), nn.CrossEntropyLoss()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            """
            + _TRAIN.replace("\n        ", "\n            ")
        )
    )
    assert begun.code == 2 and "order: {weights: module:Name}" in " ".join((begun.output + begun.errors).split())
