"""A search that goes on: what its trials come to is told to it, and what it decides is carried out."""
