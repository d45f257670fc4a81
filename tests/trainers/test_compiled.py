"""Models whose kernels torch.compile makes: their bits hang on shapes alone, and what cannot be compiled is named."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainers.support.equality_data import images
from tests.trainers.support.equality_tasks import BATCH, SEED, EqualityTask, small
from trainers import Group, Trainer
from trainers.step.compute import CannotCompile, compile_model

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="there is no C++ compiler here; install the g++ package"
)


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    """Compile in this process alone, and leave torch's compiler to other tests as it was."""
    import torch._dynamo
    import torch._inductor.config

    settings = torch._inductor.config.save_config(), torch._dynamo.config.save_config()
    torch._inductor.config.compile_threads = 1  # else it starts processes that import torch
    yield
    torch._inductor.config.load_config(settings[0])
    torch._dynamo.config.load_config(settings[1])
    torch._dynamo.reset()


def batch(samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(samples)
    return torch.randn(samples, 1, 16, 16, generator=generator), torch.zeros(samples, dtype=torch.int64)


def made(network: Callable[[], nn.Module] = small, **options: Any) -> Trainer:
    return Trainer(EqualityTask("task", network, lambda: images("task", channels=1), **options), 1, Group.alone())


@needs_compiler
def test_a_compiled_network_has_the_bits_of_a_script_that_compiles() -> None:
    """One virtual worker; tests/trainers/equality has several, beside DDP."""
    sizes = (BATCH, BATCH - 1, BATCH)
    torch.manual_seed(SEED)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    compiled = torch.compile(model, dynamic=False)
    torch.manual_seed(SEED + 1)
    torch.empty((), dtype=torch.int64).random_()  # as a DataLoader does
    for samples in sizes:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(batch(samples)[0]), batch(samples)[1]).backward()
        optimizer.step()
    trainer = made(compile=True)
    for samples in sizes:
        trainer.step([batch(samples)])
    assert all(torch.equal(*pair) for pair in zip(trainer.model.parameters(), model.parameters()))


@pytest.mark.slow
@needs_compiler
def test_kernels_for_a_shape_do_not_hang_on_the_shapes_before() -> None:
    from torch._dynamo.utils import counters
    from torch._inductor import config

    counters.clear()
    first, second = made(compile=True), made(compile=True)
    for samples in (6, 5, 4):
        second.step([batch(samples)])
    second.restore(first.snapshot())
    for trainer in (first, second):
        trainer.step([batch(4)])
        trainer.step([batch(6)])
    assert counters["stats"]["unique_graphs"] == 3  # for both networks; none serves two shapes
    assert config.deterministic
    weights = [[parameter.detach() for parameter in trainer.model.parameters()] for trainer in (first, second)]
    assert all(torch.equal(*pair) for pair in zip(*weights))


@needs_compiler
def test_compiled_kernels_are_what_computes() -> None:
    calls: list[str] = []

    class Told(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = small()

        def forward(self, images: Tensor) -> Tensor:
            calls.append("compiled" if torch.compiler.is_compiling() else "eager")
            return self.net(images)  # type: ignore[no-any-return]

    pins = {}
    for how in (False, "graphs"):
        trainer = made(Told, compile=how)
        trainer.step([batch(4)])
        pins[how] = trainer.state([]).pins
    assert "compiler" not in pins[False] and any(char.isdigit() for char in pins["graphs"]["compiler"])
    assert calls == ["eager", "compiled"]


@needs_compiler
def test_kernels_outlive_their_network_and_do_not_keep_it() -> None:
    from torch._dynamo.utils import counters

    counters.clear()
    trainer = made(compile=True)
    trainer.step([batch(4)])
    weights = weakref.ref(next(trainer.model.parameters()))
    del trainer
    gc.collect()
    assert weights() is None
    made(compile=True).step([batch(4)])
    assert counters["stats"]["unique_graphs"] == 1


@needs_compiler
def test_a_model_that_would_be_compiled_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.step.compute._MOST_SHAPES", 2)
    trainer = made(compile=True)
    with pytest.raises(Exception, match="recompile_limit"):
        for samples in (2, 3, 4, 5):
            trainer.step([batch(samples)])


def test_d2_is_refused() -> None:
    with pytest.raises(CannotCompile, match="job a is to be compiled, and D2 .* Choose D1, or leave `compile` out"):
        compile_model("a", small(), True, mixed_kinds=True, device=torch.device("cpu"))


def test_a_compiler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("a-compiler-that-is-not-there",))
    with pytest.raises(CannotCompile, match="there is no C.. compiler here: install g.. or clang"):
        compile_model("a", small(), "graphs", mixed_kinds=False, device=torch.device("cpu"))


def test_a_device_without_triton_is_named() -> None:
    with pytest.raises(CannotCompile, match="no Triton for devices of the kind xpu: install it, or leave"):
        compile_model("a", small(), True, mixed_kinds=False, device=torch.device("xpu"))
