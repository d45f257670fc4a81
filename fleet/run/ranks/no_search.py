"""Specs that ask for a search, where none can be made yet."""

from __future__ import annotations

from fleet.spec import ABSENT, EnsembleSpec, SpecError


def without_search(spec: EnsembleSpec) -> EnsembleSpec:
    """The spec, if it has no search.

    Raises:
        SpecError: it has one.
    """
    if spec.search is None:
        return spec
    rule = "no command of this version carries a search out"
    mend = "write a `sample` among the jobs: it draws them from the same distributions, and each trains to its end"
    raise SpecError([spec.origins.problem(("search",), ABSENT, rule, mend=mend)], spec.origins.file)
