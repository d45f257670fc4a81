"""State that virtual workers would share unseen: it is refused by name, with the mend; what is harmless passes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn.utils import prune

from trainers import Group, Trainer, UntoldState
from trainers.repeatable.determinism import ConsistencyWarning
from trainers.repeatable.process_settings import ProcessSettings


class Net(nn.Module):
    """Two inputs, two classes, a frozen parameter, a buffer, and what a test does in `forward`."""

    def __init__(self, what: str = "nothing") -> None:
        super().__init__()
        self.layer, self.what = nn.Linear(2, 2), what
        self.slow = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.hidden, self.recent = 0, torch.zeros(2), [0.0]
        self.cache: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            getattr(self, f"do_{self.what}")(inputs)
        return self.layer(inputs) * self.slow

    def do_nothing(self, inputs: Tensor) -> None:
        pass

    def do_in_place(self, inputs: Tensor) -> None:
        self.slow.mul_(0.9)

    def do_by_data(self, inputs: Tensor) -> None:
        self.slow.data.mul_(0.9)

    def do_new_data(self, inputs: Tensor) -> None:
        self.slow.data = self.slow.data * 0.9

    def do_trained(self, inputs: Tensor) -> None:
        self.layer.weight.clamp_(-1, 1)

    def do_count(self, inputs: Tensor) -> None:
        self.calls += 1

    def do_count_bright(self, inputs: Tensor) -> None:
        self.calls += int(torch.rand(()) * 1000)

    def do_hide(self, inputs: Tensor) -> None:
        self.hidden = self.hidden + inputs.mean(0)

    def do_remember(self, inputs: Tensor) -> None:
        self.recent.append(1.0)

    def do_cache(self, inputs: Tensor) -> None:
        self.cache = torch.ones(2)

    def do_set_threads(self, inputs: Tensor) -> None:
        torch.set_num_threads(2)

    def do_set_benchmark(self, inputs: Tensor) -> None:
        torch.backends.cudnn.benchmark = True

    def do_buffer(self, inputs: Tensor) -> None:
        self.get_buffer("seen").add_(1)


class Task:
    batch_size = 4

    def __init__(self, what: str = "nothing", **more: Any) -> None:
        self.what = what
        vars(self).update(more)

    def model(self) -> nn.Module:
        return Net(self.what)

    def optimizer(self, model: nn.Module) -> optim.Optimizer:
        return optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)

    def dataset(self, train: bool) -> None:
        return None


def train(task: Any, steps: int = 6) -> Trainer:
    trainer = Trainer(task, 2, Group.alone())
    for step in range(steps):
        batch = torch.full((4, 2), 0.1 * (step + 1)), torch.tensor([0, 1, 0, 1])
        trainer.step([batch, batch])
    return trainer


@pytest.mark.parametrize("what", ["in_place", "by_data", "new_data"])
def test_a_frozen_parameter_that_the_forward_pass_changes_is_refused(what: str) -> None:
    with pytest.raises(UntoldState, match=r"changes parameter slow.*once a worker.*after_step\(model\)"):
        train(Task(what))


def test_a_trained_parameter_that_the_forward_pass_changes_is_refused() -> None:
    with pytest.raises(UntoldState, match=r"changes parameter layer\.weight"):
        train(Task("trained"))


@pytest.mark.parametrize(("what", "name"), [("hide", "hidden"), ("remember", "recent")])
def test_an_attribute_that_the_forward_pass_changes_is_refused_unless_it_is_scratch(what: str, name: str) -> None:
    with pytest.raises(UntoldState, match=rf"changes attribute {name}.*register_buffer.*scratch = \('{name}',\)"):
        train(Task(what))
    assert train(Task(what, scratch=(name,))).steps == 6


def test_each_worker_has_plain_attributes_of_its_own_unless_they_are_scratch() -> None:
    trainer = train(Task("count"))
    assert [worker.as_tree()["attributes"] for worker in trainer.workers] == [{"calls": 6}] * 2
    trainer = train(Task("count", scratch=("calls",)))
    assert "attributes" not in trainer.workers[0].as_tree() and trainer.model.calls == 12


class Noting(Task):
    """Keeps a list, a tensor and a count of its own, which its loss changes."""

    def __init__(self, **more: Any) -> None:
        super().__init__(losses=[], mean=torch.zeros(2), calls=0, **more)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        outputs = model(batch[0])
        with torch.no_grad():
            self.mean.mul_(0.9).add_(outputs.mean(0))  # type: ignore[attr-defined]
        self.calls += 1  # type: ignore[attr-defined]
        self.losses.append(0.0)  # type: ignore[attr-defined]
        return nn.functional.cross_entropy(outputs, batch[1])


def test_what_a_task_keeps_and_nobody_carries_is_told_once() -> None:
    with pytest.warns(ConsistencyWarning) as told:
        trainer = train(Noting())
    texts = [str(each.message) for each in told if each.category is ConsistencyWarning]
    assert [text.partition(", which")[0].partition("changes ")[2] for text in texts] == [
        "losses of its task",
        "mean of its task",
    ]
    assert all("state()" in text and "scratch = ('" in text for text in texts)
    assert [worker.as_tree()["attributes"] for worker in trainer.workers] == [{"its task:calls": 6}] * 2


def test_it_is_not_told_where_the_task_says_that_nothing_reads_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConsistencyWarning)
        assert train(Noting(scratch=("losses", "mean"))).steps == 6


class Averaged(Task):
    """Keeps an average of its weights, and its network for later looks."""

    def model(self) -> nn.Module:
        self.net = super().model()
        self.average = optim.swa_utils.AveragedModel(self.net)
        return self.net

    def after_step(self, model: nn.Module) -> None:
        self.average.update_parameters(model)


class Kept(Averaged):
    def state(self) -> dict[str, Any]:
        return {"average": dict(self.average.state_dict())}

    def load_state(self, state: dict[str, Any]) -> None:
        self.average.load_state_dict(state["average"])


def test_what_comes_after_a_step_and_no_checkpoint_holds_is_told() -> None:
    with pytest.warns(ConsistencyWarning, match=r"after_step changes average of its task.*state\(\)") as told:
        train(Averaged("buffer"))
    assert sum(each.category is ConsistencyWarning for each in told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConsistencyWarning)
        train(Kept("buffer"))
        train(Averaged("buffer", scratch=("average",)))


def test_a_module_may_say_itself_what_nothing_reads_later() -> None:
    class Caching(Net):
        scratch = ("recent",)

    assert train(Task("remember", model=lambda: Caching("remember"))).steps == 6


def test_counters_that_networks_share_are_as_they_were_once_a_trainer_has_left() -> None:
    class Shared(Net):
        total = 0

        def do_total(self, inputs: Tensor) -> None:
            Shared.total += 1

    task = Task("total", model=lambda: Shared("total"))
    trainer = Trainer(task, 2, Group.alone())
    batch = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    for _ in range(2):
        with trainer.reducing():
            trainer.step([batch, batch])
        assert Shared.total == 0
    assert [list(worker.attributes.values()) for worker in trainer.workers] == [[2], [2]]


def test_an_attribute_that_turns_within_and_between_turns_is_refused() -> None:
    def reset(model: nn.Module) -> None:
        model.calls = 5 * model.calls  # type: ignore[operator,assignment]

    assert train(Task(after_step=reset)).steps == 6
    uneven = Task("count_bright", after_step=reset)
    with pytest.raises(UntoldState, match="after_step changes attribute calls, of which each virtual worker has its"):
        train(uneven)


@pytest.mark.parametrize(
    ("what", "name", "value"), [("set_threads", "threads", 1), ("set_benchmark", "cudnn", (True, False, True))]
)
def test_settings_of_the_process_that_the_forward_pass_changes_are_refused_and_put_back(
    what: str, name: str, value: object
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.raises(UntoldState, match=f"sets {name} for the whole process"):
            train(Task(what))
        assert getattr(ProcessSettings.now(), name) == value
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("what", ["nothing", "cache", "buffer"])
def test_a_cache_that_is_made_once_and_buffers_pass(what: str) -> None:
    assert train(Task(what)).steps == 6


@pytest.mark.parametrize("method", ["before_step", "after_step"])
def test_a_buffer_that_is_changed_between_turns_is_refused(method: str) -> None:
    with pytest.raises(UntoldState, match=f"{method} changes buffer seen.*in `forward`"):
        changes: dict[str, Any] = {method: lambda model: model.seen.add_(1)}
        train(Task(**changes))


def test_a_frozen_parameter_may_change_once_after_a_step() -> None:
    trainer = train(Task(after_step=lambda model: model.slow.data.mul_(0.5)))
    assert dict(trainer.model.named_parameters())["slow"].tolist() == [0.5**6] * 2


def test_statistics_over_all_workers_at_once_are_refused() -> None:
    class Synchronised(Task):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2))

    with pytest.raises(UntoldState, match="module 1 is a SyncBatchNorm.*GroupNorm"):
        train(Synchronised())


def test_sizes_that_nobody_knows_are_refused() -> None:
    class Unsized(Task):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(2, 2), nn.LazyBatchNorm1d(), nn.LazyLinear(2))

    with pytest.raises(UntoldState, match="module 1 is a LazyBatchNorm1d, .*DDP refuses it, too.*pass zeros"):
        train(Unsized())


def pruned(layer: nn.Linear) -> nn.Linear:
    prune.random_unstructured(layer, "bias", amount=1)
    once: nn.Linear = prune.l1_unstructured(layer, "weight", amount=0.5)
    return once


@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.spectral_norm, pruned])
def test_weights_that_torch_works_out_anew_before_each_pass_may_change(normed: Any) -> None:
    class Normed(Task):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(2, 3), normed(nn.Linear(3, 2)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # there are newer norms, which keep nothing
        assert train(Normed()).steps == 6


def test_an_optimizer_and_a_schedule_that_need_more_than_a_step_gives_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="LBFGS asks for the loss several times a step.*Adam"):
        train(Task(optimizer=lambda model: optim.LBFGS(model.parameters())))
    with pytest.raises(ValueError, match="ReduceLROnPlateau needs a metric.*CosineAnnealingLR"):
        train(Task(scheduler=optim.lr_scheduler.ReduceLROnPlateau))
