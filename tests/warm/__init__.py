"""Warm starts: the Python processes of tests are forked from one that has imported torch already.

Most of the time of a test that starts ranks goes into `import torch` and what an optimizer's first step imports, 3 to 5 s
of CPU a process. `start/sitecustomize.py` is what a started Python reads first: it hands its command line, environment
and open files to the `nursery`, which forks a process that goes on from there, and stands for that process until its
end. mpiexec, signals, exit codes, limits and bindings are the real ones. Where anything differs that Python, torch or
OpenMP read once at their start, or FLEET_WARM is not set, the process starts as ever.
"""
