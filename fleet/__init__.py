"""fleet: train an ensemble of different networks in one MPI job, each with the bits it would have had alone."""

__version__ = "0.1.0"
