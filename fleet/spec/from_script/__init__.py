"""A training script -> a first spec: the script runs until its second step, and is watched from outside."""
