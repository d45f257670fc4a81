"""What each rank of a run does: it trains, prepares samples, keeps a ring."""
