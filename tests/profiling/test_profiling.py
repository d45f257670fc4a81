"""What is measured, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fleet.journal.whole_files import ProfileError, RateProfile
from fleet.profiling.measure import keep_busy, made_up_batch, measure
from fleet.profiling.sizing import Size, assumed_rate, guessed_rate
from fleet.session.measuring import Measurement, demand, first_pass, largest_count, preprocessors_needed, second_pass
from preprocess import SampleLayout
from trainers import Group, Trainer


def test_the_papers_counts() -> None:
    # FLEET, Appendix B.3 with its own numbers: rates from 21 to 176, 4 GPUs a node: M_a = 9, M_b = 8, M_t = 9.
    assert largest_count({"slow": 21.0, "fast": 176.0}, 4) == 9
    assert largest_count({"slow": 100.0, "fast": 176.0}, 4) == 8


@given(
    rates=st.dictionaries(st.text("abc", min_size=1), st.floats(1, 1000), min_size=1, max_size=6),
    limit=st.integers(1, 12),
    devices=st.integers(1, 12),
)
def test_second_pass_measures_each_count_once_and_none_too_many(
    rates: dict[str, float], limit: int, devices: int
) -> None:
    wanted = second_pass(rates, dict.fromkeys(rates, limit), 4, devices)
    assert len(set(wanted)) == len(wanted)
    assert all(2 <= x.count <= min(limit, devices, largest_count(rates, 4)) for x in wanted)
    assert [x.count for x in wanted] == sorted((x.count for x in wanted), reverse=True)
    assert first_pass(rates) == [Measurement(job, 1) for job in rates]


def test_the_fewest_preprocessors_that_do() -> None:
    made = {1: 100.0, 2: 190.0, 4: 350.0}
    assert preprocessors_needed(made, 100.0) == 1
    assert preprocessors_needed(made, 101.0) == 2
    assert preprocessors_needed(made, 1000.0) is None


def test_demand_of_shared_and_of_own_streams() -> None:
    single = {"a": 10.0, "b": 30.0, "c": 20.0}
    assert demand(single, {"a": "s", "b": "s", "c": "t"}, 3, share=True) == 50.0  # the fastest of s, and c
    assert demand(single, {"a": "s", "b": "s", "c": "t"}, 2, share=False) == 50.0  # the two fastest


def test_a_profile_comes_back(tmp_path: Path) -> None:
    profile = RateProfile("here", "now", {"f": {1: 10.0, 2: 19.0}}, {"f": "net"}, {1: 500.0})
    profile.write(tmp_path / "deep" / "profile.json")
    back = RateProfile.read(tmp_path / "deep" / "profile.json")
    assert back == profile
    assert back.measured("f") == back.named("net") == {1: 10.0, 2: 19.0}
    assert back.measured("other") == back.named("other") == {}


def test_a_later_profile_adds_to_an_earlier_one_and_an_empty_one_takes_nothing_away() -> None:
    earlier = RateProfile("here", "now", {"f": {1: 10.0}, "g": {1: 5.0}}, {"f": "net", "g": "other"}, {1: 500.0})
    later = RateProfile("there", "then", {"f": {1: 12.0}}, {"f": "net"})
    both = earlier.updated(later)
    assert both.rates == {"f": {1: 12.0}, "g": {1: 5.0}} and both.preprocessors == {1: 500.0}
    assert both.where == "there" and earlier.updated(RateProfile("there", "then")) == earlier


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"rates": {"f": 3}}', '{"rates": {"f": {"x": 1}}}'])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(ProfileError, match="p.json"):
        RateProfile.read(tmp_path / "p.json")
    with pytest.raises(ProfileError, match="fleet profile SPEC"):
        RateProfile.read(tmp_path / "none.json")


class _Task:
    batch_size = 4
    seed = 0

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1)

    def dataset(self, train: bool) -> None:
        return None


def test_a_measurement_trains_as_many_batches_as_asked() -> None:
    trainer = Trainer(_Task(), 2, Group.alone())
    timing = measure(trainer, SampleLayout((3, 4), "float32"), batches=10, timed=5, budget_seconds=60.0)
    assert trainer.steps == 10 and timing.batches == 5
    assert timing.rate > 0 and timing.seconds > 0


def test_a_slow_job_is_measured_on_few_batches() -> None:
    trainer = Trainer(_Task(), 2, Group.alone())
    timing = measure(trainer, SampleLayout((3, 4), "float32"), batches=48, timed=20, budget_seconds=0.0)
    assert trainer.steps == 5 and timing.batches == 3


class _OfFewSteps(_Task):
    """Its learning rate has a schedule of so few steps that more of them are an error."""

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=4)


def test_a_measurement_may_take_more_steps_than_a_schedule_has() -> None:
    trainer = Trainer(_OfFewSteps(), 2, Group.alone())
    assert measure(trainer, SampleLayout((3, 4), "float32"), batches=10, timed=5, budget_seconds=60.0).batches == 5
    looks = iter([False] * 6 + [True])
    keep_busy(Trainer(_OfFewSteps(), 2, Group.alone()), SampleLayout((3, 4), "float32"), lambda: next(looks))


class _TimedSteps(_Task):
    """Each step takes a second of a clock that only moves here, and the first a hundred, as the first on a device."""

    def __init__(self) -> None:
        self.now = 0.0

    def model(self) -> nn.Module:
        model = super().model()
        model.register_forward_pre_hook(lambda *_: self.pass_time())
        return model

    def pass_time(self) -> None:
        self.now += 1.0 if self.now else 100.0


def test_a_first_step_that_is_slow_leaves_as_many_timed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    task = _TimedSteps()
    trainer = Trainer(task, 1, Group.alone())
    monkeypatch.setattr("fleet.profiling.measure.time.perf_counter", lambda: task.now)
    timing = measure(trainer, SampleLayout((3, 4), "float32"), batches=48, timed=20, budget_seconds=148.0)
    assert (trainer.steps, timing.batches) == (48, 20)


def test_made_up_batches_have_the_layout() -> None:
    inputs, targets = made_up_batch(SampleLayout((5, 5, 3), "uint8", (2,), "float32"), 7, torch.device("cpu"))
    assert inputs.shape == (7, 5, 5, 3) and inputs.dtype == torch.uint8
    assert targets.shape == (7, 2) and targets.dtype == torch.float32


class _Words(_Task):
    """Ten words and three places: other ids than these it does not know."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(20, 3))


class _OwnWords(_Task):
    """The same with a table of its own kind."""

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Parameter(torch.zeros(10, 4))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.rows[ids].flatten(1)

    def model(self) -> nn.Module:
        return nn.Sequential(self.Table(), nn.Linear(20, 3))


@pytest.mark.parametrize("task", [_Words(), _OwnWords()])
def test_a_small_vocabulary_is_measured(task: _Task) -> None:
    timing = measure(Trainer(task, 2, Group.alone()), SampleLayout((5,), "int64"), 4, 3, budget_seconds=60.0)
    assert timing.batches == 3


class _Bert(_Task):
    """Words have a table of 10 rows, their places one of 5, their kinds one of 2."""

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places, self.kinds = nn.Embedding(10, 4), nn.Embedding(5, 4), nn.Embedding(2, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            kinds, places = torch.zeros_like(ids), torch.arange(ids.shape[1], device=ids.device)
            words = self.words(ids.long().clamp(min=0).contiguous())
            return (words + self.places(places) + self.kinds(kinds)).flatten(1)

    def model(self) -> nn.Module:
        return nn.Sequential(self.Tables(), nn.Linear(20, 3))


class _WithoutMeta(_Words):
    """Its model looks at numbers, which there are none of before it runs for good."""

    def model(self) -> nn.Module:
        model = super().model()
        model.register_forward_pre_hook(lambda _, inputs: None if inputs[0].max() < 10 else 1 / 0)
        return model


@pytest.mark.parametrize("task", [_Words(), _OwnWords(), _Bert(), _WithoutMeta()], ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_all_words_of_a_vocabulary_are_met(task: _Task, kind: str) -> None:
    seen: list[torch.Tensor] = []
    trainer = Trainer(task, 2, Group.alone())
    trainer.model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    measure(trainer, SampleLayout((5,), kind), 4, 3, budget_seconds=60.0)
    assert seen[0].unique().tolist() == list(range(10))


def sized(operations: float | None) -> Size:
    return Size(1000, 4000, 4000, 0, 0, None, operations)


def test_a_guess_goes_by_operations_and_by_how_fast_the_device_is_at_those_of_others() -> None:
    others = [(sized(10.0), 100.0), (sized(20.0), 40.0), (sized(5.0), 400.0), (sized(None), 7.0)]
    assert guessed_rate(sized(50.0), others, "cpu") == 1000.0 / 50.0, "the median of 1000, 800 and 2000 a second"
    assert guessed_rate(sized(None), others, "cpu") == 70.0, "the median of their rates"
    assert guessed_rate(sized(50.0), [], "cpu") == assumed_rate(sized(50.0), "cpu")
