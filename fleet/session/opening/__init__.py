"""What all ranks do before they take their roles: they agree on the spec, open the data, check their places."""
