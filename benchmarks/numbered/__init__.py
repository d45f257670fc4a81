"""The parts of the benchmark of what numbers mean: a file a subject, each with `bars()`."""
