"""What `fleet simulate` shows and writes of a comparison: its table, its figures, its page, its files."""
