"""Making samples: a data set with its transforms, and the loop that fills lanes with them."""
