"""`python -m tests.search.support.one_digest SAMPLER`: the digest of a search with that sampler."""

from __future__ import annotations

import sys

from fleet.search.of_spec import search_of
from tests.search.support.curves import cost, value
from tests.search.support.driving import drive
from tests.search.support.sections import spec_of


def digest(sampler: str, order: int) -> str:
    """The digest of a search whose results come in the order with this number."""
    spec = spec_of(sampler=sampler, stopping={"name": "halving"}, prefetch=2)
    return drive(search_of(spec, cost), value, order).digest()


if __name__ == "__main__":
    print(digest(sys.argv[1], 7))
