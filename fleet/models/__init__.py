"""Trained networks in use: which there are and how good they are, their weights, and training them further.

members = read_members(Path("runs/demo"))                   # the networks of a run directory
network = read_network(members.of("mlp-1"), members.spec)   # one of them, with its best checkpoint's weights
ensemble = load("runs/demo", members="best:5")              # several as one `nn.Module` of mean probabilities
"""
