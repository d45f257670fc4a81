"""`python -m preprocess.sharing NAME`: the service of a name; settings come on standard input, as JSON.

Started by loaders, not by people. Standard output says in one line of JSON whether it runs, or why not.
"""

from __future__ import annotations

import os
import sys

from preprocess.sharing.place import ServicePlace
from preprocess.sharing.settings import SETTINGS
from preprocess.sharing.start import serve


def main() -> None:
    """Serve the name on the command line, in a process that is not the starting one's child."""
    if os.fork():
        os._exit(0)
    ready = os.dup(1)
    os.dup2(2, 1)  # prints go to the log
    settings = SETTINGS.validate_json(sys.stdin.readline())
    sys.path[:] = [path for path in settings.paths if path not in sys.path] + sys.path
    serve(ServicePlace.of(sys.argv[1]), settings, None, ready)


if __name__ == "__main__":
    main()
