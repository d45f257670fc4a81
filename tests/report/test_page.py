"""The report page: whole, self-contained, escaped, and there for every kind of run."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from fleet.report.run_history import build_history
from fleet.report.run_page import render, write_report
from tests.journals import as_events

Event = dict[str, Any]
VOID = {"meta", "br", "link", "input", "hr", "img"}
HOSTILES = (
    '<script>alert(1)</script>"><img src="http://evil.example/x" onerror=alert(1)>',
    "' src='http://evil.example/x",
    "@ink",
    "{{ 7 * 7 }}",
    "<!--<script>",
    "\x1b[31mred\x00",
    "\ud800",
    "名前",
)


class Page(HTMLParser):
    """Checks that tags nest, and collects what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open and self.open[-1] == "script" else self.texts).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def headings(self) -> list[str]:
        """Section titles in order."""
        return [identity for tag, attrs in self.tags if tag == "section" and (identity := attrs.get("id"))]

    @property
    def figures(self) -> dict[str, Any]:
        return dict(json.loads(next(script for script in self.scripts if script.startswith("{"))))


def page_of(events: list[Event], name: str = "run") -> Page:
    return Page(render(build_history(as_events(events)), name))


SECTIONS = [
    "results",
    "timeline",
    "flotillas",
    "waiting",
    "rates",
    "curves",
    "overheads",
    "data-path",
    "machine",
    "warnings",
]


def test_the_page_shows_everything_in_order(simulated: Callable[..., list[Event]]) -> None:
    page = page_of(simulated(jobs=8, failing=(3,), killed_after=60), "digits")
    assert page.headings == SECTIONS
    assert list(page.figures) == ["timeline", "waiting", "rates", "curve-0", "curve-1", "data-path"]
    assert "digits failed" in page.text
    assert "1 network failed net-3 in epoch 1: ValueError: net-3 <b>" in page.text
    assert "Best network 91.65 % accuracy, net-6" in page.text
    assert "whole run" in page.text


def test_bounds_and_gaps_stand_beside_the_flotillas_of_policies_that_compute_them(
    simulated: Callable[..., list[Event]],
) -> None:
    events = simulated(jobs=4)
    assert "Expected end" not in page_of(events).text
    first = next(event for event in events if event["event"] == "planned")
    bounded = [{**event, "bound_seconds": 50.0, "end_seconds": 60.0} if event is first else event for event in events]
    assert "Expected end Gap" in page_of(bounded).text and "20.0 %" in page_of(bounded).text


def test_the_page_tells_how_many_samples_were_made_for_each_one_read(simulated: Callable[..., list[Event]]) -> None:
    events = simulated(jobs=2)
    assert "for each one read" not in page_of(events).text, "nobody counted"
    told = {"t": 1.0, "event": "samples", "read": {"digits": 3000}, "laid": {"digits": 4000}, "made": {"digits": 750}}
    text = page_of([*events, told, told]).text
    assert "Samples made for each one read: 0.25; 6,000 were read by networks, 8,000 laid" in text


def test_the_page_is_self_contained(simulated: Callable[..., list[Event]], write_journal: Callable[..., Path]) -> None:
    directory = write_journal(simulated(), name="digits")
    path = write_report(directory)
    text = path.read_text(encoding="utf-8")
    assert path == directory / "report.html"
    assert text.count("plotly.js v") <= 2 and "Plotly" in text
    assert 'src="http' not in text and "src='http" not in text
    outside = [a for tag, a in Page(text).tags if tag in {"link", "img", "iframe"} or (tag == "script" and "src" in a)]
    assert outside == []
    assert "default-src 'none'" in text
    assert sorted(os.listdir(directory)) == ["journal.jsonl", "report.html"]


@pytest.mark.parametrize("name", HOSTILES)
def test_hostile_names_are_only_text(simulated: Callable[..., list[Event]], name: str) -> None:
    text = render(build_history(as_events(simulated(jobs=2, failing=(1,), name=name + "{}"))), name)
    page, honest = Page(text), page_of(simulated(jobs=2, failing=(1,)))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in honest.tags]
    shown = name.encode(errors="replace").decode()  # half of a surrogate pair can stand in no file
    assert {button for _, attrs in page.tags if (button := attrs.get("data-network"))} == {f"{shown}0", f"{shown}1"}
    assert 'src="http' not in text and "src='http" not in text
    for script in page.scripts:
        assert "<script>alert" not in script and "<!--<script>" not in script
    hovers = [trace.get("hovertext", []) for trace in page.figures["timeline"]["data"]]
    assert not any("<script" in hover or "<img" in hover for hover in sum(hovers, []))


@pytest.mark.parametrize("jobs, devices", [(1, (1,)), (2, (1, 1)), (100, (16, 16, 16, 16))])
def test_few_and_many_networks(simulated: Callable[..., list[Event]], jobs: int, devices: tuple[int, ...]) -> None:
    page = page_of(simulated(jobs=jobs, devices_per_node=devices))
    rows = [attrs for tag, attrs in page.tags if tag == "th" and attrs.get("data-value")]
    assert len(rows) == jobs
    assert ("select" in [tag for tag, _ in page.tags]) == (jobs > 1)


def test_every_prefix_of_a_run_makes_a_page(simulated: Callable[..., list[Event]]) -> None:
    events = simulated(jobs=2, devices_per_node=(2,), failing=(1,), epochs=2)
    for length in range(len(events) + 1):
        page = page_of(events[:length])
        assert page.headings == SECTIONS


def test_only_a_session_line(simulated: Callable[..., list[Event]]) -> None:
    page = page_of(simulated()[:1])
    assert "unfinished" in page.text and "No network trained." in page.text
    assert page.figures == {}
    assert len("".join(page.scripts)) < 20_000  # plotly stays out where nothing is drawn


def test_plotly_takes_every_figure(simulated: Callable[..., list[Event]]) -> None:
    page = page_of(simulated(jobs=12, failing=(3,), killed_after=40))
    assert page.figures
    for name, figure in page.figures.items():
        painted = json.loads(
            re.sub(r'"@(ink|muted|rule|surface|accent|idle|data|peers|reforming)"', '"#123456"', json.dumps(figure))
        )
        assert len(plotly.graph_objects.Figure(painted).data) == len(figure["data"]), name


def test_values_that_are_not_finite_reach_the_page_as_gaps() -> None:
    events = [
        {"t": 0, "event": "session", "policy": "local"},
        {
            "t": 2,
            "event": "epoch",
            "job": "a",
            "epoch": 0,
            "metrics": {"loss": float("nan")},
            "devices": [0],
            "rate": 3.0,
        },
        {
            "t": 4,
            "event": "epoch",
            "job": "a",
            "epoch": 1,
            "metrics": {"loss": float("inf")},
            "devices": [0],
            "rate": 3.0,
        },
    ]
    page = page_of(events)
    assert page.figures["curve-0"]["data"][0]["y"] == [None, None]
    assert "inf" in page.text


def test_a_network_has_one_colour_everywhere(simulated: Callable[..., list[Event]]) -> None:
    page = page_of(simulated(jobs=30, devices_per_node=(8,)))
    colours: dict[str, set[str]] = {}
    for figure in page.figures.values():
        for trace in figure["data"]:
            if "meta" in trace:
                colour = trace.get("line", trace.get("marker"))["color"]
                colours.setdefault(trace["meta"]["network"], set()).add(colour)
    assert len(colours) == 30
    assert all(len(used) == 1 for used in colours.values())


def test_a_directory_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no journal.jsonl.*directory of a run"):
        write_report(tmp_path)


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    simulated: Callable[..., list[Event]], write_journal: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_journal(simulated(jobs=1))
    (directory / "report.html").write_text("old")

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(os, "replace", refuse)
        write_report(directory)
    assert sorted(os.listdir(directory)) == ["journal.jsonl", "report.html"]
    assert (directory / "report.html").read_text() == "old"
