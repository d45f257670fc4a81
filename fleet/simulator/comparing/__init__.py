"""Several policies on the same work: cases, their work, failures, and the comparison."""
