"""Warm starts: the Python processes of tests are forked from one that has imported torch already.

A rank needs 3 to 5 s of CPU for `import torch` and for what an optimizer's first step imports: most of a short run.
`start/sitecustomize.py` is what a started Python reads first. It hands its command line, environment and open files to
the `nursery`, which forks a process that goes on from there, and stands for that process until its end. mpiexec,
signals, exit codes, limits and bindings are the real ones. The workers of `pytest -n` are forked, too. A process starts
as ever where it differs from the nursery in what Python, torch or OpenMP read once at their start, and in tests that
ask for `started_cold`.
"""
