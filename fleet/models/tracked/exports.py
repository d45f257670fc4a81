"""Files of `fleet export`, found by the cards that lie beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from preprocess.files.reading import read_json

_CARD = ".safetensors.json"


def exported_models(places: Iterable[Path], run: str) -> dict[str, Path]:
    """Job -> its exported weights, the latest if there are several.

    Args:
        places: folders in which files of `fleet export` lie, or such files.
        run: name of the run from which they are.
    """
    found: dict[str, Path] = {}
    for card in sorted(_cards(places), key=lambda path: path.stat().st_mtime):
        try:
            told = read_json(card)
            if told["run"] == run:
                found[str(told["job"])] = card.with_suffix("").absolute()
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _cards(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        cards = place.glob(f"*{_CARD}") if place.is_dir() else [place.with_name(f"{place.name}.json")]
        yield from (card for card in cards if card.is_file() and card.with_suffix("").is_file())
