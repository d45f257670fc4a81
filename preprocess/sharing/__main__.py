"""The service of a name, in a Python of its own; settings come on standard input, as JSON.

Started by loaders, not by people; `launch` says how. Standard output says in one line of JSON whether it runs, or why
not.
"""

from __future__ import annotations

import os
import sys

from preprocess.sharing.launch import SETTINGS, ServicePlace
from preprocess.sharing.service import serve


def main(name: str) -> None:
    """Serve the name, in a process that is not the starting one's child and finds modules where that one does."""
    if os.fork():
        os._exit(0)
    ready = os.dup(1)
    os.dup2(2, 1)  # prints go to the log
    settings = SETTINGS.validate_json(sys.stdin.readline())
    sys.path[:] = dict.fromkeys([*settings.paths, *sys.path])
    serve(ServicePlace.of(name), settings, None, ready)


if __name__ == "__main__":
    main(sys.argv[1])
