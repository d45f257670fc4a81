"""A job between two steps: as plain data with tensors in it, and as files."""
