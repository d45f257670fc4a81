"""A process that has used a thread pool reads data that need it: `pooled_loader.py NAME object|name`."""

from __future__ import annotations

import sys

from preprocess import SharedLoader
from tests.preprocess.support import pooled


def main() -> None:
    """Print the sum of each sample."""
    name, how = sys.argv[1:]
    data = getattr(pooled, name)()
    if how == "name":
        data = {"name": name, "train": {"source": f"tests.preprocess.support.pooled:{name}"}}
    with SharedLoader(data, 4, linger=0.0, timeout=20.0) as loader:
        print(sorted(int(image.sum()) for images, _ in loader for image in images))


if __name__ == "__main__":
    main()
