"""What of MPI, devices, memory, files, schedulers and Horovod works here, and the mend for what does not."""

from fleet.doctor.check import Check, Verdict
from fleet.doctor.machine import examine

__all__ = ["Check", "Verdict", "examine"]
