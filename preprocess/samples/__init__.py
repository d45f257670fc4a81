"""What a sample is: its layout, its place in an epoch's order, its stream, and what can be wrong with it."""
