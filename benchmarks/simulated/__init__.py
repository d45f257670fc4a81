"""Parts of the benchmark `simulate`, one for each paper or question."""
