"""What `python -m benchmarks gpu_check` measures, one part a file."""
