"""Groups of parameters in a spec, and several optimizers as one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from fleet.spec import EnsembleSpec, SpecError, check
from fleet.spec.job import Job
from fleet.spec.named_parts import built_optimizer, makers_of
from fleet.spec.optimizer import Optimizer, patterns
from fleet.spec.values import Named
from trainers.task.loss import UnfitTask

_MODULE = "benchmarks.numbered.written_tasks"


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8))


def _built(network: nn.Module, **keys: Any) -> torch.optim.Optimizer:
    asked = Optimizer(**keys)
    return built_optimizer(asked, makers_of(asked), list(network.named_parameters()))


def _train(network: nn.Module, *optimizers: Any, steps: int = 5, first: int = 0) -> None:
    for step in range(first, first + steps):
        torch.manual_seed(step)
        network.zero_grad()
        network(torch.randn(6, 4)).pow(2).mean().backward()
        for each in optimizers:
            each.step()


def _state(network: nn.Module) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in network.parameters()]


def test_a_group_has_the_bits_of_torchs() -> None:
    mine, torchs = _network(), _network()
    groups = [{"match": ["*.bias", "1.*"], "weight_decay": 0}]
    optimizer = _built(mine, name="AdamW", arguments={"lr": 0.01, "weight_decay": 0.5}, groups=groups)
    decayed = [weight for weight in torchs.parameters() if weight.dim() > 1]
    others = [weight for weight in torchs.parameters() if weight.dim() == 1]
    written: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0}]
    stock = torch.optim.AdamW(written, lr=0.01, weight_decay=0.5)
    _train(mine, optimizer)
    _train(torchs, stock)
    assert all(map(torch.equal, _state(mine), _state(torchs)))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0]


_SEVERAL = [
    {"match": "*.bias", "name": "AdamW", "arguments": {"lr": 0.01}},
    {"match": "1.*", "name": "SGD", "lr": 0.1, "momentum": 0.9},
    {"match": "*", "name": "Muon", "arguments": {"lr": 0.02}},
]


def _several(network: nn.Module) -> tuple[torch.optim.Optimizer, ...]:
    named = dict(network.named_parameters())
    biases = [weight for name, weight in named.items() if name.endswith(".bias")]
    deep = [weight for name, weight in named.items() if weight.dim() == 2]
    return (
        torch.optim.AdamW(biases, lr=0.01),
        torch.optim.SGD([named["1.weight"]], lr=0.1, momentum=0.9),
        torch.optim.Muon(deep, lr=0.02),
    )


def test_several_optimizers_with_a_schedule_over_all_have_the_bits_of_torchs() -> None:
    mine, torchs = _network(), _network()
    joined, stock = _built(mine, groups=_SEVERAL), _several(torchs)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(joined, 6)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, 6) for each in stock]
    for step in range(5):
        _train(mine, joined, steps=1, first=step)
        _train(torchs, *stock, steps=1, first=step)
        for each in (schedule, *schedules):
            each.step()
    assert all(map(torch.equal, _state(mine), _state(torchs)))
    assert [group["lr"] for group in joined.param_groups] == [each.param_groups[0]["lr"] for each in stock]


def test_several_optimizers_go_on_from_what_they_saved() -> None:
    whole, first = _network(), _network()
    _train(whole, _built(whole, groups=_SEVERAL), steps=8)
    before = _built(first, groups=_SEVERAL)
    _train(first, before, steps=4)
    again, saved = _network(), copy.deepcopy(before.state_dict())
    again.load_state_dict(first.state_dict())
    after = _built(again, groups=_SEVERAL)
    after.load_state_dict(saved)
    _train(again, after, steps=4, first=4)
    assert all(map(torch.equal, _state(again), _state(whole)))
    with pytest.raises(ValueError, match="one of the joined"):
        after.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})


def test_the_first_group_with_a_pattern_has_a_parameter() -> None:
    groups = [{"match": "*.bias", "lr": 1.0}, {"match": ["0.*"], "lr": 2.0}]
    asked = Optimizer.model_validate({"name": "SGD", "groups": groups})
    assert asked.members(["0.weight", "0.bias", "1.weight"]) == [["0.bias"], ["0.weight"], ["1.weight"]]
    assert "lr" in asked.model_dump(mode="json")["groups"][0] and asked.names == ("SGD",)
    assert Optimizer.model_validate(asked.model_dump(mode="json")) == asked
    assert "groups" not in Optimizer(name="SGD").model_dump(mode="json")


def test_what_no_group_has_is_refused() -> None:
    with pytest.raises(UnfitTask, match=r"0\.weight.*last group"):
        _built(_network(), groups=[{"match": "*.bias", "name": "SGD"}])


def _problems(**optimizer: Any) -> str:
    rows = {"source": f"{_MODULE}:Rows"}
    job = {"name": "a", "model": f"{_MODULE}:Net", "data": "rows", "stop": {"epochs": 1}, "optimizer": optimizer}
    spec = EnsembleSpec.from_mapping({"name": "s", "data": {"rows": {"train": rows}}, "jobs": [job]})
    return "\n".join(map(str, check(spec)))


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ({"name": "Muon"}, ["body.0.bias", 'match: ["*.bias", "body.1.*"]', "name: Muon"]),
        ({"name": "AdamW", "arguments": {"weight_decay": {"weight": 0.1, "bias": 0}}}, ['["*bias"], weight_decay: 0}']),
        ({"name": "AdamW", "groups": [{"match": "*.bais", "lr": 1}]}, ["'*.bais'", "*.bias"]),
        ({"name": "AdamW", "groups": [{"match": "*.bias", "weight_decy": 0}]}, ["weight_decy", "weight_decay"]),
        ({"name": "AdamW", "groups": [{"match": "*", "name": "Mon"}]}, ["Mon", "Muon"]),
        ({"groups": [{"match": "*.bias", "name": "SGD", "arguments": {"lrr": 1}}]}, ["lrr", "body.0.weight"]),
    ],
)
def test_what_does_not_fit_the_network_is_refused_with_the_mend(optimizer: dict[str, Any], words: list[str]) -> None:
    told = _problems(**optimizer)
    assert all(word in told for word in words), told


def test_a_spec_with_groups_that_fit_has_no_problems() -> None:
    assert _problems(name="AdamW", groups=[{"match": ["*.bias", "*.1.*"], "weight_decay": 0}]) == ""


@pytest.mark.parametrize(
    "optimizer",
    [{"groups": [{"match": "*"}]}, {}, {"groups": [{"match": [], "name": "SGD"}]}, {"arguments": {"lr": 1}},
     {"name": "SGD", "groups": [{"match": "*", "arguments": {"lr": 1}}]}],
)  # fmt: skip
def test_groups_without_what_they_need_are_refused(optimizer: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        _problems(**optimizer)


def test_jobs_keep_plain_optimizers_as_they_were_written() -> None:
    keys = {"name": "a", "model": "m:N", "data": "d", "stop": {"epochs": 1}}
    for written in ("SGD", Named(name="SGD"), Optimizer(name="SGD")):
        job = Job.model_validate({**keys, "optimizer": written})
        assert job.model_dump(mode="json")["optimizer"] == {"name": "SGD", "arguments": {}}


def test_patterns_are_those_of_some_names_alone() -> None:
    names = ["a.weight", "a.bias", "norm.weight", "norm.bias", "b.weight", "b.bias"]
    assert patterns(["a.bias", "norm.bias", "b.bias"], names) == ["*.bias"]
    assert patterns(["norm.weight", "norm.bias"], names) == ["norm.*"]
    assert patterns(["a.weight"], names) == ["a.weight"]
