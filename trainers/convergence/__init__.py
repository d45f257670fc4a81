"""When a job ends, and which of its epochs is the best."""
