"""Other people's schedulers, and the machines of their artifacts: to compare with, not to train with.

They come in as anybody's do: `fleet simulate --policy benchmarks.papers.tiresias:Tiresias`, or by their short names
where this folder can be imported.
"""
