"""Rules that say which trial trains how far."""
