"""Which ranks read the spec before MPI starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.session.options import RunOptions, _may_be_pinned


@pytest.mark.parametrize(
    "text, overrides, may_be",
    [
        ("name: a\n", (), False),
        ("determinism: D1\n", ("resources.trainers=2",), False),
        ("determinism: {level: D2}\n", (), True),
        ("name: a\n", ("determinism=D2",), True),
    ],
)
def test_only_where_a_level_that_pins_may_be_asked_for(
    tmp_path: Path, text: str, overrides: tuple[str, ...], may_be: bool
) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text(text)
    assert _may_be_pinned(RunOptions(spec, overrides)) == may_be
