"""Hold the locks against known vulnerabilities, with pip-audit.

The packages are those of this Python; options go on to pip-audit, such as `-s osv --osv-url URL` for a mirror of the
advisories. Exit codes: 0, no vulnerability is known, or nobody could be asked, which is told; 1, some are known; 2, a
lock cannot be read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCKS = ("requirements.lock", "locks/torch-cuda.lock", "locks/tools.lock", "batch_scripts/horovod.lock")
UNREACHABLE = ("requests.exceptions.", "Could not connect", "Tip: your network may be blocking")
MEND = "where a mirror of the advisories is, name it: make audit AUDIT='-s osv --osv-url URL'"


def main(options: list[str]) -> int:
    root = Path(__file__).resolve().parent.parent
    asked, unknown, vulnerable = 0, 0, 0
    for lock in LOCKS:
        answer = _audited(root / lock, options)
        if answer is None:
            print(f"Nothing was audited, as the advisories cannot be reached from here; {MEND}")
            return 0
        for package in answer:
            asked += "vulns" in package
            unknown += "vulns" not in package
            for vulnerability in package.get("vulns", ()):
                vulnerable += 1
                mend = ", ".join(vulnerability["fix_versions"]) or "no version yet"
                print(f"{lock}: {package['name']} {package['version']}: {vulnerability['id']}, mended in {mend}")
    if not asked:
        print(f"Nothing was audited, as the advisories tell nothing of any of {unknown} packages; {MEND}")
        return 0
    untold = f"; of {unknown} more the advisories tell nothing" if unknown else ""
    print(f"Known vulnerabilities: {vulnerable}, in {asked} packages{untold}")
    return int(vulnerable > 0)


def _audited(lock: Path, options: list[str]) -> list[dict[str, Any]] | None:
    """What pip-audit tells of each package; None if nobody could be asked."""
    program = Path(sys.executable).with_name("pip-audit")
    words = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([program, *words, *options, "--requirement", lock], capture_output=True, text=True)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        return packages
    except ValueError:
        if any(sign in done.stderr for sign in UNREACHABLE):
            return None
        print(f"{lock} cannot be audited: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
