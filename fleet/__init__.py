"""fleet: train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""

import os
import sys

__version__ = "0.1.0"


def after_standard_library() -> int:
    """Where a person's folders stand on `sys.path`: a `random.py` in one is not Python's own, and hides no other."""
    standard = os.path.dirname(os.__file__)
    own = (standard, os.path.join(standard, "lib-dynload"))
    return max((place for place, path in enumerate(sys.path, 1) if path in own), default=0)
