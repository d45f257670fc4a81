"""What numbers mean, held against plain torch: a file a subject, with the bars of the benchmark `numbers`."""
