"""Messages between the members of a group, over MPI or torch.distributed."""
