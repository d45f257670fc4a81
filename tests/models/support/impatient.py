"""A rank of `fleet predict` that waits for others for few seconds.

Args: run directory, networks, data set, seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fleet.models.predict import AskedPrediction
from fleet.models.predict_ranks import predict_on_rank

if __name__ == "__main__":
    directory, members, data, seconds = sys.argv[1:]
    sys.exit(predict_on_rank(Path(directory), AskedPrediction(members, data), print, float(seconds)))
