"""The page in a real browser: the figures are drawn, nothing goes wrong, nothing is cut off on a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.commands.simulated_report import comparison_page as comparison_page
from fleet.report.run_history import build_history
from fleet.report.run_page import render
from fleet.scheduling.model.cluster import Cluster
from fleet.search.journalled import Searched, journalled, section_of
from fleet.simulator.comparing.compared_policies import Comparison, compare
from fleet.simulator.comparing.settings import cases_of
from fleet.simulator.comparing.workload import Workload
from fleet.spec import results_mapping
from tests.journals import as_events
from tests.report.test_searched import POPULATION, TWO
from tests.search.support.curves import cost, value
from tests.search.support.journals import searched_lines
from tests.search.support.sections import spec_of

Event = dict[str, Any]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--virtual-time-budget=6000",
)
DARK, LIGHT = 0, 1
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chromium-browser is installed")

# Stands first in a copy of the page: notes every error, tries the page's own script, and tells the frame around it.
PROBE = """<script>
const problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective));
console.error = (...words) => problems.push(words.join(" "));
function facts() {
  const plots = Array.from(document.querySelectorAll("[data-figure]"));
  const heads = Array.from(document.querySelectorAll(".sortable thead button"));
  const head = heads.find((button) => button.textContent === "Accuracy");
  const answer = {
    drawn: plots.map((plot) => [plot.dataset.figure, plot.querySelectorAll(".main-svg").length > 0]),
    wide: plots.filter((plot) => plot.getBoundingClientRect().right > innerWidth + 1).length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    page: getComputedStyle(document.body).backgroundColor,
    ink: plots.length ? plots[0].layout.font.color : null,
  };
  const values = () => Array.from(document.querySelectorAll(".sortable tbody tr"), (row) => row.cells[3].dataset.value);
  if (head) {
    head.click();
    answer.rising = values();
    head.click();
    answer.falling = values();
  }
  const button = document.querySelector("[data-network]");
  if (button && plots.length) {
    button.click();
    answer.selected = button.dataset.network;
    answer.dimmed = plots[0].data.filter((trace) => trace.opacity === 0.1).length;
    answer.pressed = button.getAttribute("aria-pressed");
  }
  return { ...answer, problems };
}
addEventListener("load", () => setTimeout(() => parent.postMessage([window.name, facts()], "*"), 1500));
</script>"""

FRAME = """<!DOCTYPE html><body style="margin:0"><pre id="answers">{{}}</pre><script>
const answers = {{}};
addEventListener("message", (event) => {{
  answers[event.data[0]] = event.data[1];
  document.getElementById("answers").textContent = JSON.stringify(answers);
}});
</script>{frames}</body>"""


def browse(folder: Path, address: Path, scheme: int, *flags: str) -> str:
    """What the browser writes to standard output."""
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags]
    command += [f"--blink-settings=preferredColorScheme={scheme}", address.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def frames(folder: Path, pages: dict[str, list[Event]], widths: tuple[int, ...]) -> Path:
    """A page that holds the report of each of `pages` at each of `widths`, with the probe inside."""
    return framed(
        folder, {name: render(build_history(as_events(events)), name) for name, events in pages.items()}, widths
    )


def framed(folder: Path, pages: dict[str, str], widths: tuple[int, ...]) -> Path:
    """A page that holds each of `pages` at each of `widths`, with the probe inside."""
    inner = ""
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text.replace("<head>", "<head>" + PROBE, 1))
        for width in widths:
            style = f"border:0;width:{width}px;height:900px"
            inner += f'<iframe name="{name}-{width}" src="{name}.html" style="{style}"></iframe>'
    address = folder / "frames.html"
    address.write_text(FRAME.format(frames=inner))
    return address


def answers(folder: Path, address: Path, scheme: int) -> dict[str, Any]:
    dom = browse(folder, address, scheme, "--window-size=1600,1000", "--dump-dom")
    found = re.search(r'<pre id="answers">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None
    return dict(json.loads(html.unescape(found.group(1))))


@pytest.fixture
def pages(simulated: Callable[..., list[Event]]) -> dict[str, list[Event]]:
    long = "a-name-without-any-place-to-break-it-that-is-longer-than-a-phone-is-wide-{}"
    return {
        "digits": simulated(jobs=8, failing=(3,), killed_after=60),
        "hundred": simulated(jobs=100, devices_per_node=(16, 16, 16, 16), epochs=3),
        "long": simulated(jobs=2, failing=(0,), name=long),
        "hostile": simulated(jobs=2, name="</script><img src=x onerror=fail()>{}"),
        "one": simulated(jobs=1, devices_per_node=(1,)),
        "empty": simulated(jobs=1)[:1],
    }


def test_every_page_draws_its_figures_without_an_error(pages: dict[str, list[Event]], tmp_path: Path) -> None:
    found = answers(tmp_path, frames(tmp_path, pages, (1400, 400)), LIGHT)
    assert set(found) == {f"{name}-{width}" for name in pages for width in (1400, 400)}
    for name, answer in found.items():
        assert answer["problems"] == [], name
        assert (answer["overflow"], answer["wide"]) == (0, 0), name
        assert all(drawn for _, drawn in answer["drawn"]), name
        assert len(answer["drawn"]) == (0 if name.startswith("empty") else 6), name
    check_script(found["digits-1400"])
    assert found["hundred-400"]["dimmed"] == 99


def test_a_comparison_of_policies_draws_its_figures_without_an_error(tmp_path: Path) -> None:
    labels = ("fifo", "fifo:backfill=true", "tiresias")
    jobs = "name,arrival,devices,duration,deadline\n" + "".join(
        f"j{i},{i},{1 + i % 4},50,{i + 90}\n" for i in range(60)
    )
    (tmp_path / "trace-with-a-name-that-is-longer-than-a-phone-is-wide-without-any-break.csv").write_text(jobs)
    workload = Workload(trace=next(tmp_path.glob("*.csv")))
    comparison = Comparison(workload, Cluster((4, 4)), cases_of(labels, [], [0, 1]))
    page = comparison_page(comparison, compare(comparison))
    for name, answer in answers(tmp_path, framed(tmp_path, {"page": page}, (1400, 400)), LIGHT).items():
        assert answer["problems"] == [], name
        assert (answer["overflow"], answer["wide"]) == (0, 0), name
        assert len(answer["drawn"]) == 6 and all(drawn for _, drawn in answer["drawn"]), name
        assert (answer["selected"], answer["dimmed"]) == ("fifo", 2), name


def test_the_page_of_a_search_draws_its_figures_without_an_error(tmp_path: Path) -> None:
    pages = {
        "many": searched_page(trials=300, width=16),
        "begun": searched_page(most=9),
        "one": searched_page(trials=1),
        "fresh": searched_page(most=0),
        "front": searched_page(**TWO),
        "population": searched_page(**POPULATION),
        "hostile": searched_page(trials=3, name="</script><img src=x onerror=fail()>{trial}"),
    }
    found = answers(tmp_path, framed(tmp_path, pages, (400,)), LIGHT)  # the width in which least has a place
    assert set(found) == {f"{name}-400" for name in pages}
    for name, answer in found.items():
        assert answer["problems"] == [], name
        assert (answer["overflow"], answer["wide"]) == (0, 0), name
        assert all(drawn for _, drawn in answer["drawn"]), name
        wanted = {"search-parallel", "search-rungs"} | (set() if "fresh" in name else {"search-time", "search-devices"})
        wanted |= {"search-front-0"} if "front" in name else set()
        wanted |= {"search-lineage", "search-value-0"} if "population" in name else set()
        assert wanted <= {figure for figure, _ in answer["drawn"]}, name


def searched_page(most: int | None = None, **search: Any) -> str:
    spec = spec_of(**{"stopping": {"name": "halving", "eta": 3, "rungs": [1, 3, 9]}, **search})
    lines = searched_lines(spec, value, cost, most)
    told = journalled(as_events(lines))
    section = section_of(results_mapping(spec), told)
    assert section is not None
    return render(build_history(as_events(lines)), "search", Searched(section, told))


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_figures_and_page_follow_light_and_dark(pages: dict[str, list[Event]], tmp_path: Path, scheme: int) -> None:
    answer = answers(tmp_path, frames(tmp_path, {"one": pages["one"]}, (1400,)), scheme)["one-1400"]
    page, ink = brightness(answer["page"]), int(answer["ink"][1:3], 16)
    assert (page > 200 and ink < 80) if scheme == LIGHT else (page < 60 and ink > 180)


def check_script(answer: dict[str, Any]) -> None:
    """Clicking a header sorts, clicking again turns round; clicking a network dims the seven others."""
    rising = [float(value) for value in answer["rising"]]
    assert rising == sorted(rising) and rising[0] < rising[-1]
    assert [float(value) for value in answer["falling"]] == sorted(rising, reverse=True)
    assert (answer["dimmed"], answer["pressed"]) == (7, "true")


@pytest.mark.parametrize("width", [1400, 500])
def test_a_screenshot_is_taken(pages: dict[str, list[Event]], tmp_path: Path, width: int) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(render(build_history(as_events(pages["digits"])), "digits"))
    browse(tmp_path, page, LIGHT, f"--window-size={width},3000", f"--screenshot={picture}")
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (width, 3000)
    assert len(data) > 50_000  # an empty page is a few thousand bytes


def brightness(colour: str) -> float:
    """Mean of the channels of rgb(r, g, b)."""
    channels = [int(number) for number in re.findall(r"\d+", colour)[:3]]
    return sum(channels) / 3
