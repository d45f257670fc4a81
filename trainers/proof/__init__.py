"""Proof of equal bits: stock DDP as the yardstick, comparisons and traces of tensors."""
