"""Runs policies over predicted machines: the coordinator of live runs, with another clock and another executor."""
