"""fleet's search against those of other libraries: the same networks, in the same order, on the same cores."""
