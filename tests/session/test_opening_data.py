"""Data sets of a run that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet.spec import EnsembleSpec
from fleet.workers.datasets import open_datasets
from preprocess import SourceError


def test_all_data_sets_that_cannot_be_used_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.py").write_text("words = ['ab'] * 4\npairs = [((0.5, 1.0), 1)] * 4\nnone = []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    job = {"model": "trainers.zoo:MLP", "optimizer": "SGD", "stop": {"epochs": 1}, "virtual_workers": 1}
    names = ("words", "pairs", "none")

    def opened(*names: str) -> Any:
        data = {name: {"train": {"source": f"rows:{name}"}} for name in names}
        jobs = [{"name": name, "data": name, **job} for name in names]
        return open_datasets(EnsembleSpec.from_mapping({"name": "rows", "data": data, "jobs": jobs}, folder=tmp_path))

    with pytest.raises(SourceError) as caught:
        opened(*names)
    first, *problems = str(caught.value).splitlines()
    assert first == "the data: 2 problems"
    assert [line.split(": its")[0].split(": a source")[0] for line in problems] == [
        "  1. words: 'rows:words'",
        "  2. none: 'rows:none'",
    ]
    with pytest.raises(SourceError, match="^'rows:none': a source needs at least one sample"):
        opened("pairs", "none")
    assert list(opened("pairs")) == ["pairs"]
