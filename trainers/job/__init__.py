"""One job: its trainers, its progress, and its moves to other trainers."""
