"""What a run of ten thousand networks costs rank 0, measured with the real coordinator and played ranks."""
