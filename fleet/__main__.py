"""`python -m fleet`: what launchers start on every rank."""

import os
import sys

if __name__ == "__main__":
    if sys.path[0] in ("", os.getcwd()):  # where Python has put the current folder, before its own modules
        own = os.path.dirname(os.__file__)
        last = max((place for place, path in enumerate(sys.path) if path in (own, f"{own}/lib-dynload")), default=0)
        sys.path.insert(last, sys.path.pop(0))
    from fleet.machine.launch.launched import tell_begun

    tell_begun()
    from fleet.commands.entry import main

    main()
