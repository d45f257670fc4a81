"""No wait of device copies, feeds, sums and moves is without a mutant that takes it away."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.device.waits import ALL, ROOT, Mutant, text_of

ROOMS = ("trainers/device", "trainers/reduce", "trainers/step")
FILES = (
    "trainers/messages/torch_backend.py", "trainers/messages/group.py", "trainers/messages/transport.py",
    "trainers/messages/mpi.py",
    "trainers/job/trainer.py", "trainers/job/resize.py", "trainers/task/task.py",
    "fleet/workers/feed.py",
)  # fmt: skip
CALLED = {
    "wait", "wait_stream", "wait_event", "record_stream", "record_event", "record", "synchronize", "join", "shutdown",
    "poll", "stream", "mark", "settle", "connected", "follow", "free", "finish", "complete", "ready", "_await", "_wait",
    "_finish", "_stop",
}  # fmt: skip
"""What waits or marks when it is called: torch's, Python's and the project's own."""
NAMED = {"query", "select"}
"""The same where it is handed on."""
INNER = {"Test", "Iprobe", "Recv", "Cancel", "Create_group", "_look_around", "done", "settled"}
"""What waits, or looks whether something is over, inside the transports: calls of MPI, and what stands on them."""
TRANSPORTS = ("trainers.messages.mpi", "trainers.messages.torch_backend")
BOUNDED = {
    ("trainers.messages.mpi", "self._comm.Create_group(members, self._tag)", "communicator"): (
        "trainers.reduce.horovod",
        'self._within(self._timeout, "start", lambda: _init(hvd, transport))', "members = transport.communicator()",
    ),
}  # fmt: skip
"""Waits of hosts that no device is in, in which function; the one module that calls it, and its words that bound it."""
NO_WAITS = {
    ("trainers.job.trainer", "update.settle(layout"): "settles where buckets lie",
    ("trainers.job.trainer", "self.settle()\n        self._count_time"): "losses on the host, which are there",
    ("trainers.step.update", "filling.finish"): "begins sums",
    ("trainers.messages.torch_backend", "meeting.join"): "naps between two looks",
    ("trainers.messages.torch_backend", "self._thread.join"): "ends a process",
    ("trainers.reduce.horovod", "hvd.shutdown"): "ends Horovod",
}
"""Calls of the same names, and what they do."""


def modules() -> list[str]:
    paths = [path for room in ROOMS for path in (ROOT / room).glob("*.py")] + [ROOT / file for file in FILES]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)


def waits_of(text: str, inner: bool = False) -> Iterator[tuple[int, str]]:
    """Give the places of the names of what waits, with the words before them. inner: as in a transport."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line.encode()))
    assert text.isascii()
    tree = ast.parse(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Attribute, ast.Name)) or not isinstance(node.ctx, ast.Load):
            continue
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        joins = isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Constant, ast.JoinedStr))
        waits = name in NAMED or (name in CALLED and id(node) in called) or (inner and name in INNER)
        if waits and not joins:
            assert node.end_lineno is not None and node.end_col_offset is not None
            end = lines[node.end_lineno - 1] + node.end_col_offset
            yield end - len(name), ast.unparse(node)


def is_no_wait(module: str, place: int) -> bool:
    """Whether the place is in one of the words that only have a name of a wait."""
    bounded = [words for named, words, _ in BOUNDED if named == module]
    for words in [words for named, words in NO_WAITS if named == module] + bounded:
        start = text_of(module).index(words)
        if start <= place < start + len(words):
            return True
    return False


@pytest.mark.parametrize("module", modules())
def test_each_wait_has_a_mutant_without_it(module: str) -> None:
    text, gone = text_of(module), [mutant.gone for mutant in ALL if mutant.module == module]
    left = [
        f"{words} in line {text.count(chr(10), 0, place) + 1}"
        for place, words in waits_of(text, module in TRANSPORTS)
        if not any(place in places for places in gone) and not is_no_wait(module, place)
    ]
    assert not left, f"{module} has waits without mutants in tests/device/waits.py: {'; '.join(left)}"


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_a_mutant_takes_one_place_away(mutant: Mutant) -> None:
    assert mutant.text.count(mutant.old) == 1 and mutant.gone
    compile(mutant.text.replace(mutant.old, mutant.new), mutant.module, "exec")


@pytest.mark.parametrize(("wait", "caller"), BOUNDED.items(), ids=lambda told: told[0])
def test_a_host_s_wait_is_bounded_by_the_one_who_calls_it(wait: tuple[str, str, str], caller: tuple[str, ...]) -> None:
    module, words, function = wait
    named, *bounds = caller
    assert text_of(module).count(words) == 1
    assert all(text_of(named).count(each) for each in bounds), bounds
    callers = [path for path in (ROOT / "trainers").rglob("*.py") if f".{function}(" in path.read_text()]
    callers += [path for path in (ROOT / "fleet").rglob("*.py") if f".{function}(" in path.read_text()]
    assert [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in callers] == [named]


def test_a_wait_that_is_new_is_found() -> None:
    text = (
        "def give(side, thread, words):\n    side.wait_stream(words)\n    thread.join()\n    return ', '.join(words)\n"
    )
    assert [words for _, words in waits_of(text)] == ["side.wait_stream", "thread.join"]
    over_mpi = "def give(request):\n    while not request.Test():\n        pass\n    return request.done\n"
    assert [words for _, words in waits_of(over_mpi, inner=True)] == ["request.done", "request.Test"]


def test_all_rooms_are_there() -> None:
    assert all(Path(ROOT, file).is_file() for file in FILES) and len(modules()) > len(FILES) + 2 * len(ROOMS)
