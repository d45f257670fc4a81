"""No kind of accelerator has code of its own: modules of devices come from torch by the device at hand."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterator

from tests.device.waits import ROOT

KINDS = {"cuda", "xpu", "hpu", "mps", "mtia", "npu"}
ROOMS = ("fleet", "preprocess", "trainers")
SETTINGS = {"torch.backends.cuda", "torch.version.cuda"}
"""What torch has for one kind alone: switches of TF32 and attention, and the version that it was built with."""
OF_USERS = {"fleet/spec/from_script/watched_script.py": {"torch.cuda", "torch.Tensor.cuda"}}
"""What a training script of a user may call while a spec is made of it."""


def named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in KINDS and "torch" in ast.unparse(node.value):
            yield ast.unparse(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            yield from (name for name in names if name.startswith("torch.") and name.split(".")[1] in KINDS)


def test_no_source_names_a_kind_of_accelerator() -> None:
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        allowed = SETTINGS | OF_USERS.get(str(path.relative_to(ROOT)), set())
        found = {name for name in named(ast.parse(path.read_text())) if name not in allowed}
        assert not found, f"{path}: {found}; ask torch.get_device_module(device)"


def test_what_names_one_is_found() -> None:
    text = "import torch.cuda\nfrom torch.xpu import Stream\ntorch.cuda.synchronize()\ntorch.version.hip\n"
    assert sorted(named(ast.parse(text))) == ["torch.cuda", "torch.cuda", "torch.xpu"]


def test_the_oldest_torch_that_may_be_installed_knows_accelerators() -> None:
    """`torch.accelerator` came with 2.6."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (floor,) = (line for line in setup["options"]["install_requires"].split() if line.startswith("torch>"))
    assert tuple(map(int, floor.removeprefix("torch>=").split("."))) >= (2, 6)
