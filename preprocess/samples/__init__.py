"""Samples: their layout, their order in an epoch, their streams, and the errors that they can have."""
