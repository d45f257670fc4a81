"""Ordered reduction: the sum of N virtual workers' gradients in gloo's order, on any number of trainers."""
