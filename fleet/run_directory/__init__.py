"""The files of a run: each is written whole, or grows by whole lines."""
