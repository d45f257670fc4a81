"""`python -m fleet`: what launchers start on every rank."""

from fleet.launched import tell_begun

if __name__ == "__main__":
    tell_begun()
    from fleet.cli import main

    main()
