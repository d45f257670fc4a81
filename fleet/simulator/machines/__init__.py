"""The machines that simulations play on: what a job's pace is there, and what a move costs."""
