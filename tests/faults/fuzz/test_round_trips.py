"""Every message, journal event and checkpoint comes back as what it was, or is refused by an error that says so.

The types are found by walking the packages: one that is added is tried, too.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fleet
import preprocess
import trainers
from fleet.journal.events import KINDS, Event, Stopping, _form, parse
from fleet.journal.journal import Journal, JournalError, as_json, read_journal
from fleet.journal.whole_files import EnsembleFile, ProfileError, RateProfile
from preprocess.sharing.messages import MessageCodec, MessageError
from tests.docs.support.journals import in_code
from tests.faults.fuzz.odd_values import NUMBERS, TEXTS, TREES, of_type, plain, same
from tests.trainers.support.made_checkpoints import checkpoint
from trainers import CheckpointError

settings.register_profile(
    "round trips", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
TRIES = settings(settings.get_profile("round trips"), max_examples=15)
MORE = settings(settings.get_profile("round trips"), max_examples=100)


def modules(holding: str = "") -> Iterator[ModuleType]:
    """Those whose source holds this text."""
    for package in (fleet, preprocess, trainers):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__") or "horovod" in found.name:
                continue
            spec = importlib.util.find_spec(found.name)
            if spec and spec.origin and holding in Path(spec.origin).read_text():
                yield importlib.import_module(found.name)


def codecs() -> dict[str, MessageCodec[Any]]:
    """By the module that makes it."""
    return {
        module.__name__: value
        for module in modules("MessageCodec")
        for name, value in vars(module).items()
        if isinstance(value, MessageCodec) and f"\n{name}" in inspect.getsource(module)
    }


CODECS = codecs()
MESSAGES = [(codec, kind) for codec in CODECS.values() for kind in codec.kinds]


def test_no_message_is_forgotten() -> None:
    assert len(CODECS) >= 2 and len(MESSAGES) >= 38
    for module, codec in CODECS.items():
        named = vars(sys.modules[module]).values()
        own = {kind for kind in named if isinstance(kind, type) and dataclasses.is_dataclass(kind)}
        bases = {base for kind in codec.kinds for base in kind.__mro__[1:]}
        assert {kind for kind in own - bases if kind.__module__ == module} <= set(codec.kinds)


@pytest.mark.parametrize(("codec", "kind"), MESSAGES, ids=lambda value: getattr(value, "__name__", ""))
def test_messages(codec: MessageCodec[Any], kind: type) -> None:
    @TRIES
    @given(of_type(kind))
    def comes_back(message: Any) -> None:
        try:
            back = codec.decode(codec.encode(message))
        except MessageError as error:
            assert str(error)
            return
        assert same(message, back)

    comes_back()


def written(path: Path, event: Event) -> list[Event]:
    """What is read of a journal in which the event stands between two others."""
    path.unlink(missing_ok=True)
    journal = Journal(path)
    journal.write(Stopping(jobs=("before",)))
    try:
        journal.write(event)
    finally:
        journal.write(Stopping(jobs=("after",)))
        journal.close()
        first, *between, last = read_journal(path)
        assert (as_json(first)["jobs"], as_json(last)["jobs"]) == (["before"], ["after"])
    return between


WHOLE, MANY = st.integers(0, 2**53), st.integers(1, 64)
SHAPES: list[tuple[Any, st.SearchStrategy[Any]]] = [  # an example, and values like it
    (3, MANY), (0, WHOLE), (2**53, WHOLE), (-1.5, NUMBERS), (1.5, st.floats(1e-300, 1e300)), ("x", TEXTS),
    (None, st.none()), (True, st.booleans()),
    ([0], st.lists(WHOLE, max_size=3)), (["x"], st.lists(TEXTS, max_size=3)),
    ({"1": -1.5}, st.dictionaries(MANY.map(str), NUMBERS, max_size=3)),
    ({"1": 1.5}, st.dictionaries(MANY.map(str), st.floats(1e-300, 1e300), min_size=1, max_size=3)),
    ({"x": -1.5}, st.dictionaries(TEXTS, NUMBERS, max_size=3)),
    ({"x": [0]}, st.dictionaries(TEXTS, st.lists(WHOLE, max_size=3), max_size=3)),
    (
        {"1": {"x": -1.5}},
        st.dictionaries(MANY.map(str), st.fixed_dictionaries({"data": NUMBERS, "peers": NUMBERS}), max_size=3),
    ),
    ([{"rank": 1}], st.lists(st.fixed_dictionaries({"rank": MANY, "device_name": TEXTS}), max_size=2)),
    ({"x": "x"}, st.dictionaries(TEXTS, TEXTS, max_size=3)),
    ({"x": {"1": 1.5}}, st.dictionaries(TEXTS, st.dictionaries(MANY.map(str), st.floats(1e-300, 1e300), min_size=1))),
    (
        [{"what": "x", "jobs": {"x": 1}}],
        st.lists(st.fixed_dictionaries({"what": TEXTS, "jobs": st.dictionaries(TEXTS, MANY, max_size=2)}), max_size=2),
    ),
    (
        [{"metric": "x", "mode": "max"}],
        st.lists(st.fixed_dictionaries({"metric": TEXTS, "mode": st.sampled_from(["max", "min"])}), max_size=2),
    ),
    ([{"x": {"1": None}}], TREES), ({"x": 3}, st.dictionaries(TEXTS, MANY, max_size=3)),
    ({"x": [[0.0, 1.5]]}, st.dictionaries(TEXTS, st.lists(st.floats(0, 1e300), min_size=1, max_size=3, unique=True).map(
        lambda prices: [[float(second), price] for second, price in enumerate(prices)]), max_size=3)),
]  # fmt: skip


def fitting(event: str, key: str) -> st.SearchStrategy[Any]:
    """Values that a key of an event can have."""

    def fits(value: Any) -> bool:
        try:
            _form(KINDS[event]).readers[key](plain(value))
        except ValueError:
            return False
        return True

    return st.one_of([values for like, values in SHAPES if fits(like)]).filter(fits)


@pytest.mark.parametrize("event", KINDS)
def test_events_of_the_journal(event: str, tmp_path: Path) -> None:
    keys = sorted(_form(KINDS[event]).readers.keys() - {"t", "unix"})

    @TRIES
    @given(st.fixed_dictionaries({key: fitting(event, key) for key in keys}))
    def comes_back(values: dict[str, Any]) -> None:
        told = parse({"event": event, **plain(values)})
        try:
            (back,) = written(tmp_path / "journal.jsonl", told)
        except JournalError as error:
            assert str(error)
            return
        assert same(vars(told.at(back.t, back.unix)), vars(back))

    comes_back()


@MORE
@given(
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(st.sampled_from(sorted({key for each in in_code().values() for key in each})), TREES, max_size=4),
)
def test_any_keys_of_the_journal(event: str, values: dict[str, Any]) -> None:
    """A line that no reader could take is refused in a sentence."""
    try:
        told = parse({"event": event, **plain(values)})
    except ValueError as error:
        assert str(error)
        return
    assert told.event == event


def changed(field: str, value: Any) -> trainers.Checkpoint:
    """A checkpoint with something more in one field."""
    saved = checkpoint()
    more = {
        "parameters": {**saved.parameters, **(value if isinstance(value, dict) else {"x": value})},
        "workers": [{**saved.workers[0], "random": value}],
        "optimizer": {**saved.optimizer, "more": value},
        "schedule": value if isinstance(value, dict) else {"x": value},
        "layout": {**saved.layout, "more": value},
        "history": [{"loss": value}],
        "pins": {"torch": value},
    }
    return dataclasses.replace(saved, **{field: more.get(field, value)})


TENSORS = st.sampled_from(
    [torch.zeros(0), torch.tensor(1.5), torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bool)]
)
KEYS = TEXTS | st.integers(-3, 3)
STATES = st.recursive(
    TENSORS | TREES,
    lambda inner: st.lists(inner, max_size=2).map(tuple) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=6,
)


def alike(one: Any, other: Any) -> bool:
    """Whether a checkpoint's value came back: every bit of tensors, and keys and tuples as they were."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(alike, one.values(), other.values()))
    if isinstance(one, (list, tuple)):
        return (
            isinstance(one, tuple) == isinstance(other, tuple)
            and len(one) == len(other)
            and all(map(alike, one, other))
        )
    return one == other if isinstance(one, str) else same(one, other)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(trainers.Checkpoint)])
def test_checkpoints(field: str, tmp_path: Path) -> None:
    @TRIES
    @given(STATES)
    def comes_back(value: Any) -> None:
        saved = changed(field, value)
        try:
            back = trainers.read(trainers.write(tmp_path / "one.h5", saved).path)
        except CheckpointError as error:
            assert str(error)
            return
        assert alike(saved.as_tree(), back.as_tree())

    comes_back()


def test_files_that_are_written_and_read() -> None:
    """Dataclasses that write themselves into a file, and read themselves again; see below."""
    found = {
        value
        for module in modules()
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and isinstance(value, type) and {"write", "read"} <= set(dir(value))
    }
    assert found == {RateProfile, EnsembleFile}


@TRIES
@given(of_type(RateProfile))
def test_profiles(tmp_path_factory: pytest.TempPathFactory, profile: RateProfile) -> None:
    path = tmp_path_factory.getbasetemp() / "profile.json"
    try:
        profile.write(path)
        back = RateProfile.read(path)
    except ProfileError as error:
        assert str(error)
        return
    assert same(profile, back)


@TRIES
@given(of_type(EnsembleFile).map(lambda file: EnsembleFile(**plain(vars(file)))))
def test_ensemble_files(tmp_path_factory: pytest.TempPathFactory, file: EnsembleFile) -> None:
    folder = tmp_path_factory.getbasetemp()
    file.write(folder)
    back = EnsembleFile.read(folder)
    assert back is None or same(file, back)
