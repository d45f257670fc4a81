"""YAML text -> plain values with their lines."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fleet.spec.document import MOST_VALUES, parse
from fleet.spec.problem import SpecError


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-3", 1e-3),
        ("5E+2", 500.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-7", -7),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("1e", "1e"),
        ("no", False),
        ("On", True),
        ("~", None),
        ("null", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("=", "="),
        ("[1, {a: b}]", [1, {"a": "b"}]),
    ],
)
def test_values(written: str, value: object) -> None:
    found = parse(f"x: {written}").value["x"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "0o" + "7" * 5000, "9" * 5000])
def test_a_number_that_is_too_long_to_be_written_again_is_refused(number: str) -> None:
    with pytest.raises(SpecError, match="not a whole number that can be read: 5,00[02] digits are too many"):
        parse(f"x: {number}")


def test_nan_is_read() -> None:
    assert math.isnan(parse("x: .nan").value["x"])


def test_places_are_lines_and_columns_from_1() -> None:
    places = parse("a: 1\nb:\n  - c: 2\n  - 3\n").places
    assert (places[("a",)].line, places[("a",)].column) == (1, 1)
    assert (places[("b", 0, "c")].line, places[("b", 0, "c")].column) == (3, 5)
    assert places[("b", 1)].line == 4


def test_merge_keys_fill_in_what_is_not_there() -> None:
    document = parse("base: &b {x: 1, y: 2}\nother: &o {z: 3}\nuse:\n  <<: [*b, *o]\n  x: 9\n")
    assert document.value["use"] == {"x": 9, "y": 2, "z": 3}
    assert document.places[("use", "y")].line == 1 and document.places[("use", "x")].line == 5


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "the file is empty"),
        ("# only a comment\n", None, "the file is empty"),
        ("a: 1\nb: [1,\nc: 2", 3, "not valid YAML"),
        ("a: 1\n\tb: 2", 2, "not valid YAML"),
        ("a: 'x", 1, "not valid YAML"),
        ("a: *nobody", 1, "not valid YAML"),
        ("a: 1\n---\nb: 2", 2, "not valid YAML"),
        ("a: \x00", None, "not valid YAML"),
        ('a: "\\UFFFFFFFF"', None, "not valid YAML"),
        ("%YAML " + "9" * 5000 + ".1\n---\na: 1", None, "not valid YAML"),
        ("a: 1\nb: 2\na: 3", 3, "stands here twice, first on line 1"),
        ("a: 1\n? [x]\n: 2", 2, "a key must be text"),
        ("a: 1\nnull: 2", 2, "a key must be text"),
        ("a: 1\n1.5: 2", 2, "a key must be text"),
        ("a: 1\nyes: 2", 2, "a key must be text"),
        ("a: &x [*x]", 1, "an alias of itself"),
        ("a: &x {b: *x}", 1, "an alias of itself"),
        ("a: {<<: 3}", 1, "<< takes a mapping"),
        ("a: !!int x", 1, "not a whole number"),
        ("a: !!float x", 1, "not a number"),
        ("a: " + "9" * 5000, 1, "not a whole number"),
        ("a: " + "[" * 70 + "]" * 70, 1, "nested too deeply"),
        ("a: " + "[" * 1_500, None, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, line: int | None, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text, "s.yaml")
    problem = caught.value.problems[0]
    assert words in problem.rule and problem.line == line and problem.mend
    assert caught.value.file == "s.yaml" and str(caught.value).startswith("s.yaml: 1 problem\n")


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch HACKED']",
        "!!python/name:os.system",
        "!!python/tuple [1, 2]",
        "!!timestamp 2026-01-01",
        "!!binary aGVsbG8=",
        "!!set {a, b}",
        "!mine {a: 1}",
        "!<tag:yaml.org,2002:python/module:os> ''",
    ],
)
def test_tags_are_refused_and_run_nothing(tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        parse(f"name: x\nvalue: {tag}\nlist:\n- {tag}\n")
    assert [problem.path for problem in caught.value.problems] == ["value", "list[0]"]
    assert all(
        "is refused" in problem.rule and "take the tag away" in problem.mend for problem in caught.value.problems
    )
    assert not list(tmp_path.iterdir())


def test_values_cannot_fill_the_memory() -> None:
    with pytest.raises(SpecError, match="more than 200,000 values"):
        parse("- a\n" * (MOST_VALUES + 1))
    assert len(parse("- a\n" * 1000).value) == 1000


def test_aliases_cannot_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(SpecError) as caught:
        parse("\n".join(lines))
    assert f"more than {MOST_VALUES:,} values" in caught.value.problems[0].rule


def test_several_problems_are_all_reported() -> None:
    with pytest.raises(SpecError) as caught:
        parse("a: !x 1\na: 2\nb: !!int q\n")
    assert [problem.line for problem in caught.value.problems] == [1, 2, 3]
