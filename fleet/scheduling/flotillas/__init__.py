"""Jobs that train together at one pace (FLEET, MLSys'20)."""
