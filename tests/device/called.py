"""python called.py MODULE.FUNCTION ARGUMENTS: calls a function of `tests.device.programs`, and prints what it returns.

ARGUMENTS and what is printed are JSON.
"""

from __future__ import annotations

import importlib
import json
import sys

import torch

if __name__ == "__main__":
    torch.set_num_threads(1)
    module, _, function = sys.argv[1].partition(".")
    returned = getattr(importlib.import_module(f"tests.device.programs.{module}"), function)(*json.loads(sys.argv[2]))
    print(json.dumps(returned))
