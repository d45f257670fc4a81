"""A copy of the checkout, its wheel, and environments without it."""
