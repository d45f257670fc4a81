"""What of MPI, devices, memory, files, schedulers and Horovod works here, and the mend for what does not."""

from fleet.machine.doctor.check import Check, Verdict
from fleet.machine.doctor.machine import examine

__all__ = ["Check", "Verdict", "examine"]
