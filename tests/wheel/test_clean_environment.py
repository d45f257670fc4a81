"""fleet where no checkout is: from a wheelhouse, in environments that hold nothing else.

The packages come from the index that pip knows here, once; the environments are then made without any index.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import fleet
from tests.docs.support.pages import page
from tests.wheel.support.places import ROOT, copied_checkout, environment, output_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheelhouse, filled as the page tells."""
    folder = tmp_path_factory.mktemp("place")
    checkout = copied_checkout(folder / "checkout")
    here = environment(Path(sys.executable).parent)
    output_of(blocks("online"), checkout, {**here, "TORCH": "cpu"})
    (checkout / "wheelhouse").rename(folder / "wheelhouse")
    return folder


@pytest.fixture(scope="module")
def installed(place: Path) -> Path:
    """The programs of the page's environment, which was made without an index."""
    told = output_of(blocks("offline"), place, environment(Path(sys.executable).parent, offline=True))
    assert told.strip() == fleet.__version__
    return place / "fleet-env" / "bin"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder that holds the README's smallest spec and nothing else."""
    yaml = re.search(r"```yaml\n(name: first\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert yaml is not None
    (tmp_path / "first.yaml").write_text(yaml[1])
    return tmp_path


def blocks(word: str) -> str:
    """The commands that the page marks so."""
    return "".join(block.text for block in page("how-to/install.md").blocks if block.words == ("install", word))


def definition(section: str) -> str:
    """A section of the Apptainer definition."""
    text = (ROOT / "batch_scripts" / "fleet.def").read_text()
    found = re.search(rf"^%{section}\n(.*?)(?=^%|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_nothing_comes_from_the_checkout(installed: Path, empty: Path) -> None:
    code = "import batch_scripts, cv2, fleet, preprocess, simplejpeg, trainers; print(fleet, preprocess, trainers)"
    told = output_of(f"python -c '{code}'", empty, environment(installed))
    assert str(ROOT) not in told and told.count(str(installed.parent)) == 3
    assert output_of("python -m fleet --version", empty, environment(installed)).strip() == fleet.__version__


def test_the_readmes_smallest_spec_trains(installed: Path, empty: Path) -> None:
    output_of("fleet run first.yaml --out run", empty, environment(installed))
    summary = json.loads((empty / "run" / "run.json").read_text())
    assert summary["status"] == "done"
    assert all(job["metrics"]["accuracy"] > 0.5 for job in summary["jobs"].values())
    assert (empty / "run" / "report.html").is_file()


def test_templates_and_checks_are_there(installed: Path, empty: Path) -> None:
    script = "fleet submit first.yaml --site slurm --nodes 2 --gpus-per-node 4 --dry-run"
    assert output_of(script, empty, environment(installed)).startswith("#!/usr/bin/env bash\n")
    output_of("fleet doctor", empty, environment(installed))


def test_the_images_commands_make_an_environment_that_trains(place: Path, empty: Path) -> None:
    """Those of the definition; no image is built. /opt is a folder here, and this Python stands for the image's."""
    opt = f"{place}/opt/"
    (place / "opt").mkdir()
    (place / "opt" / "wheelhouse").symlink_to(place / "wheelhouse")
    here = environment(Path(sys.executable).parent, offline=True)
    output_of(definition("post").replace("/opt/", opt), empty, here)
    assert not (place / "opt" / "wheelhouse").exists()
    inside = definition("environment").replace("/opt/", opt)
    assert fleet.__version__ in output_of(inside + definition("test"), empty, here)
    run = f"{inside}\nset -- run first.yaml --out run\n{definition('runscript')}"
    output_of(run, empty, here)
    assert json.loads((empty / "run" / "run.json").read_text())["status"] == "done"
