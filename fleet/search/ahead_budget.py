"""How much may train ahead of need, so that little of a search is trained for nothing."""

from __future__ import annotations


def may_train_ahead(share: float, least: int, unused: int, at_risk: int) -> bool:
    """Whether one epoch more may be trained of what nobody may want.

    All that is not known to be wanted counts as if it were for nothing, so the share holds however it turns out.

    Args:
        share: of the epochs that the search wants, how many may be trained for nothing.
        least: epochs that the search is sure to want, all in all.
        unused: epochs that were trained for nothing.
        at_risk: epochs that were trained, or are, and may turn out to be for nothing.
    """
    return unused + at_risk + 1 <= share * least
