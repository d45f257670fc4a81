"""What a number means: each with the right value, or refused by name."""
