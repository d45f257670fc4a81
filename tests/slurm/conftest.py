"""A real Slurm of three nodes, and an ensemble that is submitted to it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.virtual_hosts import LOGIN
from benchmarks.virtual_slurm import VirtualSlurm, install, virtual_slurm, why_not
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, counting, mlp, write_ensemble
from tests.live.support.processes import run
from tests.warm.starting import nursery

__all__ = ["nursery"]

ROOT = Path(__file__).resolve().parents[2]
# What Open MPI needs on a machine without a fast network, as root.
VARIABLES = {"OMPI_MCA_osc": "^ucx", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def slurm() -> Iterator[VirtualSlurm]:
    """Three nodes."""
    reason = install() or why_not()
    if reason is not None:
        pytest.skip(reason)
    with virtual_slurm(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Three networks, two epochs."""
    return write_ensemble(tmp_path_factory.mktemp("slurm"), [mlp(), cnn(), counting()])


@pytest.fixture(scope="session")
def undisturbed(ensemble: Ensemble) -> RunFolder:
    """The ensemble, trained here without Slurm."""
    ended = run(ensemble.plain("alone"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("alone")


@dataclass(frozen=True)
class Submitted:
    """A job of the cluster: its id, its script, and its run directory."""

    job: str
    script: Path
    folder: RunFolder

    @property
    def log(self) -> str:
        """What the job printed."""
        return "".join(path.read_text() for path in sorted(self.folder.path.parent.glob(f"*-{self.job}.out")))


Submit = Callable[..., Submitted]


@pytest.fixture
def submit(slurm: VirtualSlurm, ensemble: Ensemble, request: pytest.FixtureRequest) -> Submit:
    """Call `fleet submit` on the login node: submit(nodes, *options, GATE=...); `of`: another ensemble."""

    def call(nodes: int, *options: str, of: Ensemble = ensemble, **variables: str) -> Submitted:
        out = of.left(re.sub(r"\W+", "-", request.node.name))
        given = {**VARIABLES, **variables}
        words = ["--site", "slurm", "--nodes", str(nodes), "--gpus-per-node", "0", "--cores-per-rank", "1"]
        words += [] if "--profile" in options else ["--out", str(out.path)]
        words += ["--script", f"{out.path}.sh", "--time", "10m"]
        words += [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
        command = [*slurm.hosts.on(LOGIN), sys.executable, "-m", "fleet", "submit", str(of.spec), *words, *options]
        environment = {**slurm.environment(), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=of.folder, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"submitted: job (\d+)", done.stdout)
        assert found is not None, done.stdout
        return Submitted(found.group(1), Path(f"{out.path}.sh"), out)

    return call
