"""How much may train ahead of need, so that little of a search is trained for nothing."""

from __future__ import annotations


def may_train_ahead(share: float, least: int, unused: int, useful: int, at_risk: int) -> bool:
    """Whether one epoch more may be trained of what nobody may want.

    What is not known to be wanted counts by how much has been for nothing so far: all of it, until something that was
    trained ahead has turned out to be wanted. So a small search, which cannot learn that, trains nothing at a risk.

    Args:
        share: of the epochs that the search wants, how many may be trained for nothing.
        least: epochs that the search is sure to want, all in all.
        unused: epochs that were trained for nothing.
        useful: epochs that were trained at the same risk, and turned out to be wanted.
        at_risk: epochs that were trained, or are, and may turn out to be for nothing.
    """
    likely = (1 + unused) / (1 + unused + useful)
    return unused + likely * (at_risk + 1) <= share * least
