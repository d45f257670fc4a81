"""Allocations carried out: the loop, the books, and the messages between ranks."""
