"""Sia's workloads, kinds of device and batches: policies beside the figures of the authors' simulator."""
