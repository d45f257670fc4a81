"""What a user writes to have one network trained, and what is checked of it."""
