"""How a job ends: its metrics, what they decide, and how a group agrees to stop."""
