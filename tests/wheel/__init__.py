"""The wheel that people install: what is in it, and that it works where no checkout is."""
