"""The built-in sources: where samples come from."""
