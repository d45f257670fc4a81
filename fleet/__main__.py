"""`python -m fleet`: what launchers start on every rank."""

from fleet.machine.launch.launched import tell_begun

if __name__ == "__main__":
    tell_begun()
    from fleet.commands.cli import main

    main()
