"""How a run stands, read from its directory alone: quick on long journals too."""
