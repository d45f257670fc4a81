"""The truth of a run: its events, what they add up to, and the files of its directory."""
