"""Files that others may have laid: one way to open them, one way to write them, and a bound on what they may take."""
