"""`fleet train`: one network, in this process, in MPI ranks or under torchrun."""
