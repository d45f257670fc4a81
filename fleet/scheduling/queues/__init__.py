"""Orders in which jobs wait."""
