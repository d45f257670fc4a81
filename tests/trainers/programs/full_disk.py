"""Write a checkpoint that fits and one that does not. Argument: a folder on a file system of 512 KiB.

Prints what was seen as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from trainers import Checkpoint, CheckpointError, file_name, latest_good, write
from trainers.state.history import History


def checkpoint(epoch: int, elements: int) -> Checkpoint:
    parameters = {f"layer{i}": torch.ones(elements // 20) for i in range(20)}
    layout = {"buckets": [list(range(20))], "used": None}
    workers: list[dict[str, Any]] = [{"rank": 0, "buffers": {}}]
    optimizer: dict[str, Any] = {"state": {}, "param_groups": []}
    return Checkpoint("job", 0, 1, 1, epoch, 0, epoch, parameters, workers, optimizer, None, layout, History(), {})


def main(folder: Path) -> None:
    small, large = checkpoint(1, 2_000), checkpoint(2, 1_000_000)
    write(folder / file_name(small), small)
    error = ""
    try:
        write(folder / file_name(large), large)
    except CheckpointError as raised:
        error = str(raised)
    found, rejected = latest_good(folder)
    epoch = found.epoch if found else None
    print(json.dumps({"error": error, "epoch": epoch, "rejected": len(rejected), "files": os.listdir(folder)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
