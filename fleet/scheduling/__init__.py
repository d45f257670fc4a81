"""Pure scheduling: states in, allocations out. No MPI, no torch, no clock, no files."""
