"""A package or a module that trains nothing -> what a spec says of the networks, data sets and tasks it defines."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fleet.spec.from_script.calls import MAIN
from fleet.spec.from_script.found import Found
from fleet.spec.from_script.script import Script

_TASK = ("model", "optimizer", "dataset", "loss")
_WITHOUT_DATA = "define a class with len() and [index] -> (input, target) that takes no arguments, or `train` alone"
_WITHOUT_NETWORKS = (
    "define a torch.nn.Module, or a task class (docs/how-to/port-a-ddp-script.md), that takes no arguments"
)


def read_definitions(script: Script) -> Found:
    """Write down each task class and each network that can be made without arguments, with the first data set."""
    classes = list(_classes(script))
    tasks = [
        each for each in classes if all(callable(getattr(each, name, None)) for name in _TASK) and _can_be_made(each)
    ]
    if tasks:
        jobs = tuple({"name": _name(each), "task": _address(each, script), "stop": {"epochs": 10}} for each in tasks)
        return Found(jobs=jobs, told=("how many epochs to train is not known: 10 are written",))
    networks = [each for each in classes if issubclass(each, nn.Module) and _can_be_made(each, on_meta=True)]
    problems = (
        [] if networks else [f"{script.module} has no network that is made without arguments; {_WITHOUT_NETWORKS}"]
    )
    samples = next((found for each in classes if (found := _samples(each, script)) is not None), None)
    if samples is None:
        problems.append(f"{script.module} has no data set; {_WITHOUT_DATA}")
        return Found(problems=tuple(problems))
    section, loss = samples
    common = {
        "data": "samples",
        "optimizer": {"name": "AdamW", "arguments": {"lr": 0.001}},
        "loss": loss,
        "metrics": ["accuracy" if loss == "cross_entropy" else "mean_absolute_error"],
        "stop": {"epochs": 10},
    }
    jobs = tuple({"name": _name(each), "model": _address(each, script), **common} for each in networks)
    told = ("nothing was trained: the optimizer, the loss and 10 epochs are a beginning of fleet's own",)
    return Found({"samples": section}, jobs, 0, None, told, tuple(problems))


def _classes(script: Script) -> Iterator[type]:
    """The classes that the module defines, or a package's modules, in the order of their lines."""
    for module in _modules(script):
        found = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__]
        yield from found


def _modules(script: Script) -> Iterator[ModuleType]:
    if script.package != script.module:
        yield sys.modules[MAIN]
        return
    top = importlib.import_module(script.package)
    yield top
    for each in pkgutil.walk_packages(top.__path__, f"{script.package}."):
        if not each.name.endswith("__main__"):
            yield importlib.import_module(each.name)


def _can_be_made(kind: type, on_meta: bool = False) -> bool:
    try:
        with torch.random.fork_rng(), torch.device("meta" if on_meta else "cpu"):
            kind()
    except Exception:  # of the class's own code, or an argument that it needs
        return False
    return True


def _samples(kind: type, script: Script) -> tuple[dict[str, Any], str] | None:
    """The section of a data set, and the loss that fits its targets; None: the class is none."""
    if issubclass(kind, nn.Module) or not (hasattr(kind, "__len__") and hasattr(kind, "__getitem__")):
        return None
    address = _address(kind, script)
    takes_train = "train" in inspect.signature(kind).parameters
    for arguments in ({"train": True}, {}) if takes_train else ({},):
        try:
            made: Any = kind(**arguments)
            _, target = made[0]
        except Exception:  # no pairs, no data, or an argument that it needs
            continue
        whole = torch.as_tensor(target)
        section: dict[str, Any] = {"train": {"source": address, "arguments": arguments}}
        if arguments:
            section["held_out"] = {"source": address, "arguments": {"train": False}}
        return section, "mse_loss" if whole.is_floating_point() else "cross_entropy"
    return None


def _address(kind: type, script: Script) -> str:
    module = script.module if kind.__module__ == MAIN else kind.__module__
    return f"{module}:{kind.__qualname__}"


def _name(kind: type) -> str:
    """A class's name as a job's: TwoWords becomes two-words."""
    letters = [
        f"-{each.lower()}" if each.isupper() and place else each.lower() for place, each in enumerate(kind.__name__)
    ]
    return "".join(letters) if not kind.__name__.isupper() else kind.__name__.lower()
