"""The machine under a run: ranks, nodes and devices, launchers, schedulers, signals."""
