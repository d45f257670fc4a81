"""A rank of `fleet predict` that waits for others for few seconds.

Args: run directory, networks, data set, seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleet.run.predict.asked import Asked
from fleet.run.predict.main import run_rank

if __name__ == "__main__":
    directory, members, data, seconds = sys.argv[1:]
    sys.exit(run_rank(Path(directory), Asked(members, data), print, float(seconds)))
