"""Clusters that others run: batch systems, sites and the scripts of jobs there."""

from fleet.cluster.batch_systems import BatchAllocation, BatchSystem, SubmissionError, batch_system, find_allocation

__all__ = ["BatchAllocation", "BatchSystem", "SubmissionError", "batch_system", "find_allocation"]
