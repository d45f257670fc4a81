"""The jobs, the times and the devices of a comparison as comma-separated text."""
