"""`python -m fleet`: what launchers start on every rank."""

import os
import sys

if __name__ == "__main__":
    # Where Python has put the current folder, before its own: what lies there is data (see preprocess.files.modules).
    if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", os.getcwd()):
        here = sys.path.pop(0)
        if os.path.realpath(here) == os.path.dirname(os.path.dirname(os.path.realpath(__file__))):
            sys.path.append(here)  # fleet's own, which is not installed
    from fleet.machine.launch.launched import tell_begun

    tell_begun()
    from fleet.commands.entry import main

    main()
