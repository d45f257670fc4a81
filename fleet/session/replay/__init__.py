"""One job of a run again, alone: its task, its samples, and how far it came."""
