"""What people see of a comparison: tables, figures, a page, files."""
