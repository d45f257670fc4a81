"""What all tests have in common: their nursery, how many examples they draw, and the devices that they see.

`pytest --device rig`: the processes of tests see four devices of the rig (see `tests.device`), and no GPU. Each process
may touch one device alone, and draws the host's random numbers, so that the bits are the CPU's. Streams run late unless
they are waited for; RIG_SCHEDULE says how (see `torch_rig`).

`pytest -n`: the workers share one nursery (see `tests.warm`), and are forked by it themselves; and one that knows the
rig, where they have tests of it.

What pytest collects stays, so garbage is looked for behind it alone.

Examples of Hypothesis may take long on a busy machine. `pytest -m "not slow"`: its tests draw fewer than they name.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack

import pytest

from tests.warm.starting import RIG_FOLDER, RIG_SOCKET, rig_warming, warmed

RULES = {"RIG_FORBID": "others", "RIG_GENERATOR": "host", "RIG_SCHEDULE": "both-late"}
SHARE, LEAST = 0.4, 10  # of the examples that a test names, those that quick tests draw; and no fewer than so many
SETTINGS = "_hypothesis_internal_use_settings"  # where Hypothesis looks for what a test names


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device", choices=("rig",), help="let tests train on the rig, an accelerator in the host's memory"
    )


def pytest_configure(config: pytest.Config) -> None:
    _let_examples_take_long()
    if config.getoption("--device") == "rig":
        _see_the_rig()
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        stack = ExitStack()
        config.add_cleanup(stack.close)
        os.environ |= stack.enter_context(warmed())
        os.environ[RIG_SOCKET] = f"{os.environ['FLEET_WARM']}-rig"
        config.pluginmanager.register(RigWarming(stack))


class RigWarming:
    """Has the workers' nursery that knows the rig get ready, where they have tests of it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._begun = stack, False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        if not self._begun and any(name.startswith("tests/device/") for name in ids):
            self._begun = True
            self._stack.enter_context(rig_warming())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    if "not slow" in config.getoption("markexpr"):
        functions = {id(item.obj): item.obj for item in items if isinstance(item, pytest.Function)}
        for function in functions.values():
            if getattr(function, "is_hypothesis_test", False):
                _draw_fewer(function)


def _let_examples_take_long() -> None:
    from hypothesis import HealthCheck, settings

    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    settings.register_profile("fleet", deadline=None, suppress_health_check=slow)
    settings.load_profile("fleet")


def _draw_fewer(test: object) -> None:
    from hypothesis import settings

    named = getattr(test, SETTINGS)
    fewer = max(min(named.max_examples, LEAST), round(SHARE * named.max_examples))
    setattr(test, SETTINGS, settings(named, max_examples=fewer))


def _see_the_rig() -> None:
    from tests.device.building import NoCompiler, built

    try:
        folder = str(built())
    except NoCompiler as error:
        pytest.exit(f"--device rig, nothing is tested: {error}", returncode=0)
    os.environ[RIG_FOLDER] = folder
    os.environ.update({name: value for name, value in RULES.items() if name not in os.environ})
    sys.path.append(folder)
    __import__("torch_rig")
