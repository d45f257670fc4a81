"""Allocations carried out: the loop, the state of the run, and the messages between ranks."""
