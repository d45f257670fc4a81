"""How rank 0 has rates measured that nobody knows: what is timed, on which devices, and what it tells the books."""
