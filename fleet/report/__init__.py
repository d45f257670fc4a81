"""What people see of a run: the report, the live view, metrics for other tools; all computed from the journal."""
