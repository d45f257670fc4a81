"""Numbers of cores and ranks as people write them."""

from __future__ import annotations


def ranges(numbers: tuple[int, ...]) -> str:
    """Consecutive numbers joined: 0-3,8."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
