"""How fast an ensemble can be when its jobs share streams: bounds, water-filling, paces."""
