"""`python -m fleet`: what launchers start on every rank."""

from fleet.cli import main

if __name__ == "__main__":
    main()
