"""Real runs of `fleet train`; the tasks stand in support/, and what runs commands beside the tests of whole runs."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in (Path(__file__).parent / "support", Path(__file__).parents[1] / "run" / "support"):
    sys.path.insert(0, str(folder))
