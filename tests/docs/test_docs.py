"""The documentation says what is so: its commands run, its links lead somewhere, its tables are those of the code."""

from __future__ import annotations

import csv
import inspect
import json
import re
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import trainers.zoo
from benchmarks.gpu import kept
from benchmarks.gpu.measuring import MODULES
from fleet.commands.cli import app
from fleet.scheduling import Policy
from fleet.simulator.comparing import compared_policies as comparison
from fleet.spec.policies import policy as policy_of
from preprocess.sources.source import built_in_sources
from preprocess.transforms.transform import built_in_transforms
from tests.docs.support.commands import follow
from tests.docs.support.journals import in_code, written
from tests.docs.support.pages import DOCS, ROOT, Page, keys, page, pages, quoted, rows, rows_of
from tests.scheduling.support.all_policies import NAMES, POLICIES
from trainers import Checkpoint

POLICY_PAGES = DOCS / "reference" / "policies"
NEEDS_HOROVOD = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("horovod") is None, reason="no Horovod here: batch_scripts/install_horovod.sh"),
]


FEWER_PICTURES = {"count: int = 1200": "count: int = 320"}


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has followed the tutorial, with fewer pictures."""
    folder = tmp_path_factory.mktemp("tutorial")
    follow("tutorial.md", folder, instead=FEWER_PICTURES)
    return folder


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has trained the network that fails."""
    folder = tmp_path_factory.mktemp("faults")
    follow("how-to/faults.md", folder)
    return folder


def test_tutorial_runs_as_told(tutorial: Path) -> None:
    for run, policy in (("first", "flotilla"), ("second", "baseline")):
        summary = json.loads((tutorial / "runs" / run / "run.json").read_text())
        assert (summary["status"], summary["policy"]) == ("done", policy)
        assert (tutorial / "runs" / run / "report.html").is_file()


@pytest.mark.slow
def test_tutorial_runs_with_all_its_pictures(tmp_path: Path) -> None:
    assert follow("tutorial.md", tmp_path)


def test_tutorial_shows_the_table_that_comes_out(tutorial: Path) -> None:
    shown = [line.split("│") for line in page("tutorial.md").text.splitlines() if line.startswith("│")]
    epochs = {cells[1].strip(): cells[3].split("/")[0].strip() for cells in shown if "/" in cells[3]}
    jobs = json.loads((tutorial / "runs" / "first" / "run.json").read_text())["jobs"]
    assert epochs == {name: str(job["epochs"]) for name, job in jobs.items()}


def test_demo_is_what_make_makes() -> None:
    assert "$ make demo" in page("tutorial.md").text
    assert "fleet run examples/digits.yaml --out runs/demo" in (ROOT / "Makefile").read_text()


def test_failing_network_leaves_the_other_alone(faults: Path) -> None:
    jobs = json.loads((faults / "runs" / "broken" / "run.json").read_text())["jobs"]
    assert {name: job["status"] for name, job in jobs.items()} == {"fine": "done", "leaking": "failed"}
    assert "the hull leaks" in jobs["leaking"]["error"]


@pytest.mark.parametrize(
    "name",
    [
        "start-from-a-script",
        "own-data",
        "data-formats",
        "language-models",
        "search-space",
        pytest.param("port-a-ddp-script", marks=pytest.mark.slow),
        pytest.param("convert-data", marks=pytest.mark.slow),
        "share-a-loader",
        pytest.param("add-jobs", marks=pytest.mark.slow),
        pytest.param("see-and-steer", marks=pytest.mark.slow),
        "submit",
        "extend",
        "elastic-trainer",
        pytest.param("harvest", marks=pytest.mark.slow),
        pytest.param("profiling", marks=pytest.mark.slow),
        pytest.param("rehearse", marks=pytest.mark.slow),
        pytest.param("search", marks=pytest.mark.slow),
        pytest.param("from-python", marks=pytest.mark.slow),
        pytest.param("horovod", marks=NEEDS_HOROVOD),
    ],
)
def test_how_to_runs_as_told(name: str, tmp_path: Path) -> None:
    assert follow(f"how-to/{name}.md", tmp_path)


def test_simulating_runs_as_told(tutorial: Path) -> None:
    follow("how-to/simulate.md", tutorial)
    assert json.loads((tutorial / "fifo.json").read_text())["finished"] == 5
    assert sorted(path.name for path in (tutorial / "compared").iterdir()) == [
        "devices.csv", "jobs.csv", "report.html", "simulation.json", "timeline.csv",
    ]  # fmt: skip


def test_figures_of_a_simulation_are_documented(tutorial: Path) -> None:
    reference = page("reference/simulate.md").sections(2)
    told = json.loads((tutorial / "compared" / "simulation.json").read_text())["runs"][0]
    assert keys(reference["Figures"]) == told.keys()
    assert keys(reference["Files"]) == {*comparison.JOB_COLUMNS, *comparison.TIMELINE, *comparison.DEVICES}


def test_every_marked_page_is_followed() -> None:
    marked = {p.name for p in pages() if any(block.kind == "test" for block in p.blocks)}
    followed = {"own-data", "search-space", "port-a-ddp-script", "convert-data", "share-a-loader"}
    followed |= {"data-formats", "language-models", "profiling", "rehearse", "faults", "simulate", "add-jobs"}
    followed |= {
        "submit",
        "extend",
        "elastic-trainer",
        "horovod",
        "harvest",
        "see-and-steer",
        "start-from-a-script",
        "install",
        "search",
        "from-python",
    }  # install: by tests/wheel
    assert marked == {"docs/tutorial.md", *(f"docs/how-to/{name}.md" for name in followed)}


@pytest.mark.parametrize("source", pages(), ids=lambda p: p.name)
def test_blocks_can_be_read(source: Page) -> None:
    for language, text in source.fences:
        if language == "python":
            compile(text, source.name, "exec")
        elif language in ("yaml", "json"):
            assert isinstance(yaml.safe_load(text), dict), f"{source.name}:\n{text}"
        else:
            assert language in ("bash", "console", ""), f"{source.name} has a block of {language}"


@pytest.mark.parametrize("source", pages(), ids=lambda p: p.name)
def test_links_lead_somewhere(source: Page) -> None:
    for link in source.links:
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (source.path.parent / path).resolve() if path else source.path
        assert target.exists(), f"{source.name} links to {link}, which is not there"
        assert target.is_relative_to(ROOT), f"{source.name} links to {link}, outside the repository"
        if anchor:
            assert anchor in Page(target).anchors, f"{source.name} links to {link}; there are {Page(target).anchors}"


def test_index_lists_every_page() -> None:
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in page("index.md").links}
    assert listed == {p.path for p in pages()} - {DOCS / "index.md"} - set(POLICY_PAGES.glob("*.md"))


def test_command_line_is_documented() -> None:
    command = typer.main.get_command(app)
    sections = page("reference/cli.md").sections(2)
    documented = {title.removeprefix("fleet ") for title in sections if title.startswith("fleet ")}
    assert documented == set(command.commands)  # type: ignore[attr-defined]
    for name, sub in command.commands.items():  # type: ignore[attr-defined]
        options, arguments = _parameters(sub)
        assert _words(sections[f"fleet {name}"]) == options | arguments, name
    assert _words(sections["fleet"]) == _parameters(command)[0] | {"--help", "-h"}


def _parameters(command: Any) -> tuple[set[str], set[str]]:
    """The options of a command but --help, and its arguments as they are shown."""
    given = [p for p in command.params if p.name != "help"]
    options = {text for p in given for text in p.opts if p.param_type_name == "option"}
    return options, {str(p.metavar or p.name).strip("{}") for p in given if p.param_type_name == "argument"}


def _words(section: str) -> set[str]:
    """The first word of each name in the first column: `--out PATH` is --out."""
    return {text.split()[0] for text in keys(section)}


def test_figures_of_gpus_are_those_that_were_kept() -> None:
    here = page("explanation/gpu.md")
    assert here.text == kept.filled(here.text)
    assert [row[0] for row in rows_of(here.text.partition("<!-- gpu-check -->")[0], "part")] == list(MODULES)


def test_exit_codes_are_documented() -> None:
    told = {row[0] for row in rows(page("reference/cli.md").sections(2)["Exit codes"])}
    assert told == {"0", "1", "2", "70", "75"}
    run = next(c for c in app.registered_commands if c.callback is not None and c.callback.__name__ == "run")
    assert all(f"{code} " in str(inspect.getdoc(run.callback)) for code in told)


def test_every_policy_is_in_the_index() -> None:
    index = [row for row in rows(page("reference/policies.md").prose) if len(row) == 4]
    told = {quoted(row[0])[0]: row[-1] == "yes" for row in index}
    assert told == {name: policy_of(name).shares_streams for name in NAMES}
    linked = {(DOCS / "reference" / link).resolve() for link in page("reference/policies.md").links}
    assert set(POLICY_PAGES.glob("*.md")) <= linked


@pytest.mark.parametrize("kind", POLICIES, ids=lambda kind: kind.name)
def test_parameters_of_a_policy_are_documented(kind: type[Policy]) -> None:
    here = page(f"reference/policies/{kind.name}.md")
    assert here.text.startswith(f"# {kind.name}\n")
    known = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    told = rows_of(here.text, "parameter")
    if known and not told:  # "Parameters are those of ...": of the first page that it names
        told = rows_of(page(f"reference/policies/{here.links[0]}").text, "parameter")
    assert {quoted(row[0])[0]: _plain(row[1]) for row in told} == {
        name: _plain(json.dumps(default)) for name, default in known.items()
    }


def _plain(default: str) -> str:
    """A default as it is meant: the text "12%" may stand without quotes, 240.0 be 240, and null be none."""
    text = re.sub(r"\.0\b", "", default.strip("`").strip('"'))
    return {"none": "null"}.get(text, text)


def test_zoo_is_documented() -> None:
    sections = page("reference/zoo.md").sections(2)
    networks = {name for name in trainers.zoo.__all__ if inspect.isclass(getattr(trainers.zoo, name))} - {"Network"}
    assert set(sections) - {"FLEET's ensemble"} == networks
    for name in networks:
        told = {quoted(row[0])[0]: quoted(row[1])[0] for row in rows(sections[name])}
        arguments = inspect.signature(getattr(trainers.zoo, name)).parameters.values()
        assert told == {argument.name: repr(argument.default).replace("'", '"') for argument in arguments}, name
    signature = inspect.signature(trainers.zoo.fleet_ensemble)
    shown = ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in signature.parameters.values())
    assert f"fleet_ensemble({shown})".replace("'", '"') in sections["FLEET's ensemble"]


def test_sources_and_transforms_are_documented() -> None:
    sections = page("how-to/own-data.md").sections(2)
    sources = {quoted(row[0])[0]: row[1] for row in rows(sections["Built-in sources"])}
    assert sources.keys() == built_in_sources().keys()
    for name, function in built_in_sources().items():
        assert set(inspect.signature(function).parameters) <= set(quoted(sources[name])), name
    transforms = {quoted(row[0])[0]: quoted(row[1]) for row in rows(sections["Transforms"])}
    assert transforms == {name: [f.name for f in fields(kind)] for name, kind in built_in_transforms().items()}  # type: ignore[arg-type]


def test_journal_is_documented(tutorial: Path, faults: Path) -> None:
    section = page("reference/run-directory.md").sections(2)["journal.jsonl"]
    told = page("reference/run-directory.md").sections(3)
    found = in_code()
    runs = written([*tutorial.glob("runs/*/journal.jsonl"), *faults.glob("runs/*/journal.jsonl")])
    assert runs.keys() <= found.keys() and all(keys <= found[event] for event, keys in runs.items())
    assert told.keys() == found.keys() and all(keys(text) <= found[event] for event, text in told.items())
    assert not {event: lacking for event, text in told.items() if (lacking := found[event] - set(quoted(text)))}
    assert {"t", "unix", "event", "crc"} == keys(section[: section.index("###")])


def test_run_directory_is_documented(tutorial: Path, faults: Path) -> None:
    reference = page("reference/run-directory.md")
    run = tutorial / "runs" / "second"
    listed = {name.partition("/")[0] for name in keys(reference.text[: reference.text.index("## run.json")])}
    # a job was added, extended or stopped, a search changed, a spec given by a program, a rank stuck or lost, ...
    sometimes = {"added", "extended.json", "stacks", "at_work", "stop", "search", "given.yaml"}
    sometimes |= {".track.lock", "status.snapshot"}  # the run tracked, its journal long
    assert listed == {entry.name for entry in run.iterdir()} | sometimes
    summary = json.loads((run / "run.json").read_text())
    told = {row[0].strip("`"): set(quoted(row[1])) for row in rows(reference.sections(2)["run.json"])}
    assert told.keys() == summary.keys() | {
        "costs",
        "energy",
        "search",
        "unused_epochs",
    }  # where there are prices, where hosts tell it, where one is, likewise
    assert told["ensemble"] == summary["ensemble"].keys()
    assert told["overhead_seconds"] == summary["overhead_seconds"].keys()
    assert told["rounds"] == summary["rounds"][0].keys()
    assert summary["jobs"]["mlp"].keys() <= told["jobs"]
    assert {"done", "failed", "stopped"} == told["status"]


def test_ranks_and_metrics_are_documented(tutorial: Path) -> None:
    reference = page("reference/run-directory.md")
    run = tutorial / "runs" / "first"
    events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    ranks = next(event["ranks"] for event in events if event["event"] == "cluster")
    told = next(set(quoted(row[1])) for row in rows(reference.sections(3)["cluster"]) if row[0] == "`ranks`")
    assert told == ranks[0].keys() | {"coordinator+preprocessor", "preprocessor", "trainer"}
    with open(run / "metrics.csv", newline="") as file:
        columns = next(csv.reader(file))
    assert columns == ["job", "epoch", "step", "time", "loss", "test_loss", "accuracy", "rate", "devices"]
    assert keys(reference.sections(2)["metrics.csv"]) == set(columns) - {"loss", "test_loss", "accuracy"}


def test_checkpoint_is_documented() -> None:
    section = page("reference/run-directory.md").sections(2)["Checkpoints"]
    assert keys(section) == {f.name for f in fields(Checkpoint)} | {"format", "digest", "structure", "state/..."}
