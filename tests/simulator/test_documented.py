"""The reference of traces names every format, column and parameter that there is."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from fleet.simulator.traces import FORMATS, Synthetic, TraceJob, formats

PHILLY = (
    *(*formats.PHILLY_NAMES, *formats.PHILLY_TIMES, *formats.PHILLY_DEVICES),
    *(*formats.PHILLY_TENANTS, *formats.PHILLY_MODELS, *formats.PHILLY_STATUS),
)
TEXT = (Path(__file__).parents[2] / "docs/reference/traces.md").read_text()


def section(heading: str) -> str:
    """The text under a heading, up to the next of any level."""
    return re.split(r"^#+ ", TEXT.split(f"# {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("A job", [field.name for field in fields(TraceJob)]),
        ("Formats", FORMATS),
        ("fleet's own format", formats.NATIVE_COLUMNS),
        ("elasticflow", formats.ELASTICFLOW_COLUMNS + formats.SHORT_COLUMNS),
        ("easyscale", formats.EASYSCALE_COLUMNS),
        ("pollux", formats.POLLUX_COLUMNS),
        ("philly", PHILLY),
        ("philly-log", formats.PHILLY_LOG_COLUMNS),
        ("Synthetic traces", [field.name for field in fields(Synthetic)]),
    ],
)
def test_every_name_is_in_its_section(heading: str, names: list[str]) -> None:
    assert [name for name in names if f"`{name}`" not in section(heading)] == []


def test_the_table_of_a_job_holds_nothing_else() -> None:
    assert re.findall(r"^\| `(\w+)` \|", section("A job"), re.MULTILINE) == [field.name for field in fields(TraceJob)]
