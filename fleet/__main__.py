"""`python -m fleet`: what launchers start on every rank."""

import os
import sys

from fleet import after_standard_library

if __name__ == "__main__":
    if sys.path[0] in ("", os.getcwd()):  # where Python has put the current folder, before its own modules
        sys.path.insert(max(0, after_standard_library() - 1), sys.path.pop(0))
    from fleet.machine.launch.launched import tell_begun

    tell_begun()
    from fleet.commands.cli import main

    main()
