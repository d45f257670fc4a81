"""Runs as Python programs and notebooks see them: begun, looked at, steered; it loads neither torch nor MPI."""
