"""Which devices a job gets, once it is known how many."""
