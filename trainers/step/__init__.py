"""One step of a job: virtual workers, forward and backward, the way of gradients to the update, losses."""
