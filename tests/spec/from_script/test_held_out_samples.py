"""Of several DataLoaders, `fleet init` takes the one whose name says that its samples are held out, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.spec.from_script.first_step import _rank
from fleet.spec.from_script.watched_script import assigned_at
from tests.spec.from_script.conftest import Begun
from tests.spec.from_script.test_what_scripts_do import of

Init = Callable[..., Begun]

TRAINING = """
model = Net(5)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{loaders}
for x, y in {train}:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
BY_VARIABLE = """
train_loader = DataLoader(Rows(64), 4, shuffle=True)
valid_loader = DataLoader(Rows(count=10), 10)
test_loader = DataLoader(Rows(count=11), 11)
train_eval_loader = DataLoader(Rows(count=12), 12)
"""
BY_KEY = """
sizes = {"train": 64, "dev": 10, "more": 11}
loaders = {name: DataLoader(Rows(count=count), 4, shuffle=name == "train") for name, count in sizes.items()}
"""
BY_DATA = """
train_data, holdout_data, rest = Rows(64), Rows(count=10), Rows(count=11)
first, second, third = (DataLoader(each, 4, shuffle=each is train_data) for each in (train_data, holdout_data, rest))
"""
IN_A_FUNCTION = """
train_loader = DataLoader(Rows(64), 4, shuffle=True)
evaluated = [measure, other]
evaluated[0](model)
evaluated[1](model)
"""
FUNCTIONS = """
def measure(model):
    val_dl = DataLoader(Rows(count=10), 5)
    return [model(x) for x, _ in val_dl]


def other(model):
    extra = DataLoader(Rows(count=11), 5)
    return [model(x) for x, _ in extra]
"""
NAMELESS = """
first = DataLoader(Rows(64), 4, shuffle=True)
second = DataLoader(Rows(count=11), 4)
third = DataLoader(Rows(count=10), 4)
"""


def without_numbers(output: str) -> str:
    return re.sub(r"\(line \d+\)", "(line N)", output)


@pytest.mark.parametrize(
    ("loaders", "train", "told"),
    [
        (BY_VARIABLE, "train_loader", "those of valid_loader (line N), whose name says so; there are also test_loader"),
        (BY_KEY, 'loaders["train"]', "those of dev (line N)"),
        (BY_DATA, "first", "those of second (line N)"),
        (IN_A_FUNCTION, "train_loader", "those of val_dl (line N)"),
        (NAMELESS, "first", "those of third (line N), the last that was made; there are also second (line N);"),
    ],
    ids=["variable", "key", "data", "function", "none"],
)
def test_a_name_decides_and_a_guess_is_told(script: Init, loaders: str, train: str, told: str) -> None:
    begun = script(of(TRAINING.format(loaders=loaders, train=train), FUNCTIONS))
    (data,) = begun.spec.data.values()
    assert data.held_out is not None and data.held_out.arguments == {"count": 10}, begun.output
    (note,) = (line for line in without_numbers(begun.output).splitlines() if "held-out samples are" in line)
    assert note.startswith("note: the held-out samples are a guess, ") and told in note, note
    assert note.endswith("if others are meant, change held_out in the spec's data")


def test_one_other_loader_is_a_guess_only_where_its_name_says_nothing(script: Init) -> None:
    for name, guessed in (("testloader", False), ("batches", True)):
        loaders = f"train = DataLoader(Rows(64), 4, shuffle=True)\n{name} = DataLoader(Rows(count=10), 4)"
        begun = script(of(TRAINING.format(loaders=loaders, train="train")), "--force")
        (data,) = begun.spec.data.values()
        assert data.held_out is not None and data.held_out.arguments == {"count": 10}
        assert ("a guess, those of batches (line N), the only other one;" in without_numbers(begun.output)) == guessed


def test_how_well_names_say_it() -> None:
    best = ["val_loader", "valloader", "ValidSet", "X_VAL", "dev", "held_out", "holdout_ds", "evalData", "validation"]
    assert {_rank([name]) for name in best} == {0}
    assert {_rank([name]) for name in ("test", "testloader", "TEST_DL", "testset")} == {1}
    assert {_rank([name]) for name in ("value", "device", "loader", "latest", "other")} == {2}
    assert {_rank([name]) for name in ("train_eval_loader", "trainset")} == {3} and _rank([]) == 2


def test_what_a_line_gives_its_value_to(tmp_path: Path) -> None:
    path = str(tmp_path / "script.py")
    Path(path).write_text('self.val = load(\n    1,\n)\nloaders["test"] = 3\n')
    assert assigned_at(path, 2) == ("val",) and assigned_at(path, 4) == ("test",) and assigned_at(path, 9) == ()
