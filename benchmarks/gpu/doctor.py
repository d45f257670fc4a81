"""Whether runs work here: `fleet doctor`."""

from __future__ import annotations

import json
import sys

from benchmarks.gpu.part import ROOT, GpuPart


def measure(part: GpuPart) -> None:
    """Put its checks into a table."""
    code, output = part.command([sys.executable, "-m", "fleet", "doctor", "--json"])
    told, _ = json.JSONDecoder().raw_decode(output[output.index("{\n") :])
    rows = [
        [check[key].replace(f"{ROOT}/", "") for key in ("name", "verdict", "text", "mend")] for check in told["checks"]
    ]
    part.table("fleet doctor", ["what", "is", "found", "mend"], rows)
    broken = [check["name"] for check in told["checks"] if check["verdict"] == "broken"]
    part.bar(f"things that are broken{': ' if broken else ''}{', '.join(broken)}", len(broken), "0", code == 0)
