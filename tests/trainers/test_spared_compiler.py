"""Processes do without torch's compiler until something compiles, and compute as they do with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("started_cold")

OPTIMIZERS = """
import sys, torch
from trainers.repeatable.process_settings import spare_compiler

KINDS = [kind for name, kind in sorted(vars(torch.optim).items()) if isinstance(kind, type) and name not in
         ("Optimizer", "LBFGS", "SparseAdam")]

def stepped(kind):
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2, bias=False)
    optimizer = kind(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().sum().backward()
        assert optimizer.step(lambda: torch.is_grad_enabled()) == torch.is_grad_enabled()
        schedule.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    return model.weight.detach()
"""
SPARED = """
spare_compiler()
spare_compiler()
without = [stepped(kind) for kind in KINDS]
assert "torch._dynamo" not in sys.modules
import torch._dynamo
again = [stepped(kind) for kind in KINDS]
assert all(map(torch.equal, without, again)), KINDS
print([each.tolist() for each in without])
"""
UNSPARED = "print([stepped(kind).tolist() for kind in KINDS]); assert 'torch._dynamo' in sys.modules"
SIZED = """
import sys, torch
from fleet.profiling.sizing import size_of
from preprocess import SampleLayout
from trainers.task.task import loss_of

class Task:
    name, batch_size = "sized", 4
    def model(self): return {model}
    def optimizer(self, model): return torch.optim.AdamW(model.parameters())
    def loss(self, model, batch): return loss_of(object(), model, (batch[0].float(), batch[1]))

layout = SampleLayout({shape}, "uint8", (), "int64")
size = size_of(Task(), layout)
assert size.operations, size
assert "torch._dynamo" not in sys.modules
import torch._dynamo
assert size_of(Task(), layout) == size
"""
CNN = "torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2), "
CNN += "torch.nn.Flatten(), torch.nn.Dropout(), torch.nn.Linear(72, 10))"
MLP = "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LayerNorm(12), torch.nn.GELU(), torch.nn.Linear(12, 10))"
DETERMINISTIC = """
import sys, torch
from trainers.repeatable.determinism import use_deterministic

use_deterministic(True)
assert torch.get_deterministic_debug_mode() == 2 and "torch._inductor" not in sys.modules
{meanwhile}
import torch._inductor.config as config
assert config.deterministic is {told}
use_deterministic(not {told})
assert config.deterministic is not {told} and torch.are_deterministic_algorithms_enabled() is not {told}
"""


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_optimizers_step_as_with_the_compiler_and_load_none() -> None:
    assert printed(OPTIMIZERS + SPARED) == printed(OPTIMIZERS + UNSPARED)


@pytest.mark.parametrize(
    "name",
    [
        "torch._compile._disable_dynamo",
        pytest.param("torch._decomp.meta_table", marks=pytest.mark.slow),
        pytest.param("torch.optim.optimizer._use_grad_for_differentiable", marks=pytest.mark.slow),
    ],
)
def test_a_torch_without_these_names_loads_its_compiler(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    without = f"import sys, {module}; del sys.modules[{module!r}].{attribute}\n"
    spared = "spare_compiler()\nassert all(torch.equal(stepped(kind), stepped(kind)) for kind in KINDS)\n"
    assert not printed(without + OPTIMIZERS + spared + "assert 'torch._dynamo' in sys.modules")


def test_a_step_that_is_compiled_later_is_compiled() -> None:
    later = "spare_compiler(); before = stepped(torch.optim.SGD); counted = []\n"
    later += "compiled = lambda graph, inputs: counted.append(graph) or graph.forward\n"
    later += "model = torch.nn.Linear(3, 2); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    later += "model(torch.ones(4, 3)).sum().backward()\n"
    later += "torch.compile(optimizer.step, backend=compiled)(); assert counted\n"
    assert not printed(OPTIMIZERS + later)


@pytest.mark.parametrize(("model", "shape"), [pytest.param(CNN, (3, 8, 8), marks=pytest.mark.slow), (MLP, (12,))])
def test_networks_are_sized_without_it(model: str, shape: tuple[int, ...]) -> None:
    assert not printed(SIZED.format(model=model, shape=shape))


@pytest.mark.parametrize(
    ("meanwhile", "told"), [("", True), pytest.param("use_deterministic(False)", False, marks=pytest.mark.slow)]
)
def test_a_compiler_that_is_loaded_later_knows_what_is_to_be_deterministic(meanwhile: str, told: bool) -> None:
    assert not printed(DETERMINISTIC.format(meanwhile=meanwhile, told=told))
