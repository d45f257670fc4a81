"""Starting local ranks, watching them from outside, and removing what killed ones left."""
