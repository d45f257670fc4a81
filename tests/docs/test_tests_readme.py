"""The examples of tests/README.md are tests that pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_three_examples_are_shown() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_passes(example: str, tmp_path: Path) -> None:
    names = dict[str, object]()
    exec(compile(example, str(PAGE), "exec"), names)
    (test,) = (value for name, value in names.items() if name.startswith("test_") and callable(value))
    test(*([tmp_path] if "tmp_path: Path" in example else []))


def test_every_folder_is_a_room_or_explained() -> None:
    root = PAGE.parents[1]
    rooms = {
        path.parent.name for top in ("fleet", "preprocess", "trainers") for path in root.glob(f"{top}/**/__init__.py")
    }
    folders = {path.parent.name for path in PAGE.parent.glob("*/__init__.py")}
    explained = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert not folders - rooms - explained
