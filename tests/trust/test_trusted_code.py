"""Who uses networks of another person's run is asked before that person's code runs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fleet
from fleet.commands.cli import app
from fleet.journal.whole_files import EnsembleFile
from fleet.models.errors import ModelsError, RunError
from fleet.models.recorded_spec import check_trusted
from tests.live.support.ensembles import RunFolder, mlp, write_ensemble
from tests.live.support.processes import FLEET, Ended, run
from tests.warm.starting import nursery, started_cold

__all__ = ["nursery", "started_cold"]

OTHER = 12345  # a user whom nobody is
ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
TELLS = "\nimport pathlib\npathlib.Path(__file__).with_name('was-run').touch()\n"
NEEDING = {
    "predict": ["predict", "run"],
    "on ranks": ["predict", "run", "--ranks", "2"],
    "export": ["export", "run", "mlp", "x.pt2"],
    "extend": ["extend", "run", "mlp", "--epochs", "3"],
    "replay": ["replay", "run", "mlp"],
}
READING = {
    "status": ["status", "run"],
    "best": ["best", "run"],
    "report": ["report", "run"],
    "compare": ["compare", "run", "run"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A network whose samples are a module's beside the spec."""
    ensemble = write_ensemble(tmp_path_factory.mktemp("trained"), [mlp()])
    ended = run(ensemble.plain("run"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


@pytest.fixture
def folder(trained: RunFolder) -> Iterator[Path]:
    """The folder of a copy that all users may read, whose module tells when it runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "here"
        shutil.copytree(trained.path.parent, folder)
        known = folder / "run" / "ensemble.json"
        known.write_text(known.read_text().replace(str(trained.path.parent), str(folder)))
        (folder / "parts.py").write_text((folder / "parts.py").read_text() + TELLS)
        for each in (Path(name), folder):
            each.chmod(0o755)
        yield folder


def ran(folder: Path) -> bool:
    return (folder / "was-run").exists()


def called(folder: Path, words: list[str], *more: str) -> Ended:
    return run([*FLEET, *words, *more], folder)


def whole_run(folder: Path) -> None:
    os.chown(folder / "run", OTHER, OTHER)


def spec(folder: Path) -> None:
    os.chown(folder / "run" / "ensemble.json", OTHER, OTHER)


def code(folder: Path) -> None:
    os.chown(folder, OTHER, OTHER)


def module(folder: Path) -> None:
    os.chown(folder / "parts.py", OTHER, OTHER)


def added_job(folder: Path) -> None:
    taken = folder / "run" / "added" / "taken"
    taken.mkdir(parents=True, exist_ok=True)
    job = json.loads((folder / "run" / "ensemble.json").read_text())["spec"]["jobs"][0]
    (taken / "more.json").write_text(json.dumps({**job, "name": "more"}))
    os.chown(taken / "more.json", OTHER, OTHER)


def linked_run(folder: Path) -> None:
    (folder / "run").rename(folder / "elsewhere")
    (folder / "run").symlink_to("elsewhere")
    os.chown(folder / "elsewhere", OTHER, OTHER)


PARTS: list[Callable[[Path], None]] = [whole_run, spec, code, module, added_job, linked_run]


@ROOT_ALONE
@pytest.mark.parametrize("belongs", PARTS)
def test_what_is_another_s_is_told_and_not_run(folder: Path, belongs: Callable[[Path], None]) -> None:
    check_trusted(folder / "run", trust=False)  # all is one's own
    belongs(folder)
    with pytest.raises(ModelsError, match=rf"belongs to user {OTHER}, .*parts:Pictures.*{folder}.*--trust") as told:
        fleet.load(folder / "run")
    assert "trust=True" in str(told.value) and "\n" not in str(told.value)
    assert not ran(folder)
    fleet.load(folder / "run", trust=True)


@ROOT_ALONE
@pytest.mark.parametrize("words", NEEDING.values(), ids=NEEDING.keys())
def test_commands_that_run_code_want_to_be_told(folder: Path, words: list[str]) -> None:
    whole_run(folder)
    refused = called(folder, words)
    assert refused.code == 2, refused.output
    assert refused.output.count("belongs to user") == 1 and "add --trust" in refused.output
    assert "Traceback" not in refused.output and not ran(folder)


@ROOT_ALONE
@pytest.mark.parametrize("words", NEEDING.values(), ids=NEEDING.keys())
def test_told_so_they_run_it(folder: Path, words: list[str]) -> None:
    whole_run(folder)
    whole = {"replay": ["--trainers", "2"], "extend": ["--accept-changes"]}  # on ranks, which are told, too
    more = whole.get(words[0], [])
    trusting = called(folder, words, "--trust", *more)
    assert trusting.code == 0, trusting.output
    assert ran(folder)


@ROOT_ALONE
def test_the_ranks_of_a_launcher_are_not_trusting_by_themselves(folder: Path) -> None:
    whole_run(folder)
    answer = CliRunner(env={"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}).invoke(
        app, ["extend", str(folder / "run"), "mlp", "--epochs", "3"]
    )
    assert answer.exit_code == 2 and not ran(folder)


@ROOT_ALONE
@pytest.mark.parametrize("words", READING.values(), ids=READING.keys())
def test_commands_that_read_run_nothing_and_need_no_trust(folder: Path, words: list[str]) -> None:
    whole_run(folder)
    done = called(folder, words)
    assert done.code == 0, done.output
    assert not ran(folder)


@ROOT_ALONE
def test_a_plan_of_one_s_own_spec_needs_no_trust(folder: Path) -> None:
    whole_run(folder)
    assert called(folder, ["plan", "ensemble.yaml"]).code == 0


@ROOT_ALONE
@pytest.mark.parametrize("owner, user, good", [(0, OTHER, True), (OTHER, OTHER, True), (OTHER + 1, OTHER, False)])
def test_a_user_trusts_root_and_nobody_else(folder: Path, owner: int, user: int, good: bool) -> None:
    os.chown(folder / "run", owner, owner)
    assert trusts(folder / "run", user) is good


def trusts(directory: Path, user: int) -> bool:
    """Whether a user may use the networks without a word."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir("/")
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            (directory / "ensemble.json").read_bytes()
            check_trusted(directory, trust=False)
        except ModelsError:
            os._exit(1)
        except BaseException:
            os._exit(9)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1)
    return status == 0


@ROOT_ALONE
@pytest.mark.parametrize(
    "model, refused",
    [
        ("trainers.zoo:MLP", False),
        ("torch.nn:Linear", True),  # anything that is installed, with any arguments
        ("trainers.zoo:mlp.nn", True),  # as far as dots reach
        ("os:system", True),
        ("odd name:x", True),
    ],
)
def test_built_ins_alone_are_nobody_s_code(tmp_path: Path, model: str, refused: bool) -> None:
    spec = {"jobs": [{"name": "a", "model": {"name": model, "arguments": {"path": "/data:1"}}}]}
    (tmp_path / "ensemble.json").write_text(json.dumps({"folder": str(tmp_path), "spec": spec, "lengths": {}}))
    os.chown(tmp_path, OTHER, OTHER)
    if not refused:
        check_trusted(tmp_path, trust=False)
        return
    with pytest.raises(ModelsError, match=rf"names code \({model}\)"):
        check_trusted(tmp_path, trust=False)


def test_a_damaged_record_of_a_run_is_refused(tmp_path: Path) -> None:
    for told in ({"folder": 3, "spec": {"jobs": []}}, {"folder": "/", "spec": {}}, {"folder": "/", "spec": [1]}):
        (tmp_path / "ensemble.json").write_text(json.dumps({**told, "lengths": {}}))
        with pytest.raises(ModelsError, match=r"ensemble\.json is damaged|holds no run"):
            fleet.load(tmp_path)


SAMPLER = """
import pathlib


class Sampler:
    prefetch = None

    def __init__(self, over, seed):
        pass

    def suggest(self, number, records):
        pathlib.Path(__file__).with_name("was-run").touch()
        return {"optimizer.arguments.lr": 0.5}
"""


@ROOT_ALONE
def test_another_s_sampler_is_not_asked(tmp_path: Path) -> None:
    job = {"data": "d", "model": {"name": "trainers.zoo:MLP"}, "optimizer": {"name": "SGD"}}
    search = {
        "name": "t-{trial}", "job": {**job, "stop": {"epochs": 1}},
        "over": {"optimizer.arguments.lr": {"uniform": [0.1, 1.0]}},
        "metric": "loss", "sampler": "sampling:Sampler", "trials": 4, "width": 2,
    }  # fmt: skip
    spec = {"name": "s", "data": {"d": {"train": {"source": "preprocess:DrawnDigits"}}}, "search": search}
    (tmp_path / "sampling.py").write_text(SAMPLER)
    (tmp_path / "run").mkdir()
    EnsembleFile(str(tmp_path), spec, {}).write(tmp_path / "run")
    (tmp_path / "run" / "journal.jsonl").touch()
    os.chown(tmp_path / "run" / "ensemble.json", OTHER, OTHER)
    with pytest.raises(RunError, match=rf"belongs to user {OTHER}, .*sampling:Sampler.*trust=True"):
        fleet.attach(tmp_path / "run").ask()
    assert not ran(tmp_path)
    assert fleet.attach(tmp_path / "run").ask(trust=True).values == {"optimizer.arguments.lr": 0.5}
    assert ran(tmp_path)
