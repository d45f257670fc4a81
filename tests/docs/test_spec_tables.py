"""The reference of the spec says what the models say."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from fleet.spec import loads
from tests.docs.support.spec_tables import MODELS, main, renewed, table

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "spec.md"


def test_the_tables_are_those_of_the_models() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert renewed(page) == page, "run: python -m tests.docs.support.spec_tables docs/reference/spec.md"


def test_every_key_has_a_meaning_and_an_example() -> None:
    for model in MODELS:
        for key, info in model.model_fields.items():
            assert info.description and info.examples, f"{model.__name__}.{key}"


def test_the_example_of_the_page_is_a_spec() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [job.name for job in loads(example).jobs][:3] == ["mlp-1", "cnn-8-16", "cnn-16-32"]


def test_links_of_types_lead_to_headings() -> None:
    page = PAGE.read_text(encoding="utf-8")
    headings = {line.lstrip("# ").lower() for line in page.splitlines() if line.startswith("#")}
    anchors = headings | set(re.findall(r'<a id="(\w+)">', page))
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= anchors


def test_examples_and_defaults_are_yaml() -> None:
    for model in MODELS:
        for row in table(model).splitlines()[2:]:
            cells = [cell.strip() for cell in row.split(" | ")]
            assert yaml.safe_load(cells[-1].rstrip(" |").strip("`")) is not None, row


def test_a_page_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="tables and models differ.*Blocks"):
        renewed("<!-- table: Job -->\n<!-- end -->\n")


def test_the_command_renews_a_file(tmp_path: pathlib.Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    file = tmp_path / "spec.md"
    file.write_text(re.sub(r"\| `batches`.*\n", "", page))
    assert main([str(file)]) == 0 and file.read_text() == page
    assert main([]) == 2
