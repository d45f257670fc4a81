"""One colour for each network, the same wherever it appears; readable on light and on dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

_FEW = ("#4c7fbf", "#e08a3c", "#3fa877", "#cf5a8b", "#8a74cf", "#bd9a2a", "#2fa5b0", "#d2605a", "#7f9440", "#a3765c")
_GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
_LEVELS = ((0.66, 0.13), (0.58, 0.11), (0.74, 0.10))


def network_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour (#rrggbb) for each name, by its place: chosen by hand up to ten, then golden-angle hues in OKLCH."""
    return {name: colour_of(place, len(names)) for place, name in enumerate(names)}


def colour_of(place: int, networks: int) -> str:
    """The colour of the network at a place among so many."""
    return _FEW[place] if networks <= len(_FEW) else _spread(place)


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on `colour` (WCAG relative luminance)."""
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 * 0.6 else "#10151c"


@cache
def _spread(place: int) -> str:
    lightness, chroma = _LEVELS[place % len(_LEVELS)]
    hue = place * _GOLDEN_ANGLE + 4.4
    return _from_oklab(lightness, chroma * math.cos(hue), chroma * math.sin(hue))


def _from_oklab(lightness: float, a: float, b: float) -> str:
    """OKLab (Ottosson, 2020) to #rrggbb; what sRGB cannot show is clipped."""
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(channel)):02x}" for channel in linear)


def _gamma(linear: float) -> float:
    clipped = min(1.0, max(0.0, linear))
    return 12.92 * clipped if clipped <= 0.0031308 else 1.055 * clipped ** (1 / 2.4) - 0.055


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
