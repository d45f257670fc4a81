"""Language models on one file of token ids: each sample is made once for both, and both have the bits of DDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.live.support.ensembles import RunFolder, write_ensemble
from tests.live.support.processes import FLEET, run

VOCABULARY, CONTEXT, END, SAMPLES = 50, 8, 49, 40


def gpt(name: str, **arguments: Any) -> dict[str, Any]:
    size = {"vocabulary": VOCABULARY, "context": CONTEXT, "width": 8, "layers": 1, "heads": 2, "dropout": 0.1}
    return {"name": name, "model": {"name": "trainers.zoo:GPT", "arguments": {**size, **arguments}}}


def text(folder: Path, **arguments: Any) -> dict[str, Any]:
    """The data section over a file of ids that is written to the folder, raw."""
    ids = np.random.default_rng(1).integers(0, VOCABULARY, SAMPLES * CONTEXT + 1).astype("<u2")
    ids.tofile(folder / "ids.bin")
    given = {"path": str(folder / "ids.bin"), "dtype": "uint16", "context": CONTEXT, "vocabulary": VOCABULARY}
    source = {"source": "tokens", "arguments": {**given, **arguments}}
    return {"text": {"train": source, "held_out": {**source, "subset": 7}}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("text")
    jobs = [gpt("narrow"), gpt("wide", width=12, layers=2)]
    resources = {"trainers": 2, "preprocessors": 1, "device": "cpu", "ring_samples": 64, "slot_samples": 8}
    ensemble = write_ensemble(folder, jobs, data=text(folder), resources=resources)
    spec = ensemble.spec.read_text().replace("data: pictures", "data: text")
    ensemble.spec.write_text(spec)
    ended = run(ensemble.plain("run"), folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def test_two_networks_share_one_stream_of_ids(trained: RunFolder) -> None:
    assert {job["status"] for job in trained.summary["jobs"].values()} == {"done"}
    streams = [event["stream"] for event in trained.events("started")]
    assert {stream.partition("/")[0] for stream in streams} == {"text"}
    for name in ("narrow", "wide"):
        first, last = (event["metrics"] for event in trained.events("epoch", name))
        assert last["loss"] < first["loss"], "it does not learn"


@pytest.mark.parametrize("job", ["narrow", pytest.param("wide", marks=pytest.mark.slow)])
def test_under_stock_ddp_it_has_the_bits_of_the_run(trained: RunFolder, job: str) -> None:
    ended = run([*FLEET, "replay", str(trained.path), job, "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


def test_whole_documents_are_trained_on(tmp_path: Path) -> None:
    data = text(tmp_path, packing="documents", end=END)
    ensemble = write_ensemble(tmp_path, [gpt("one")], data=data)
    ensemble.spec.write_text(ensemble.spec.read_text().replace("data: pictures", "data: text"))
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0, ended.output
    replayed = run([*FLEET, "replay", str(tmp_path / "run"), "one", "--ddp"], tmp_path)
    assert replayed.code == 0 and "equal: every bit" in replayed.output, replayed.output


def test_an_id_beyond_the_vocabulary_is_told_by_its_place(tmp_path: Path) -> None:
    data = text(tmp_path, vocabulary=VOCABULARY - 10)
    ensemble = write_ensemble(tmp_path, [gpt("one")], data=data)
    ensemble.spec.write_text(ensemble.spec.read_text().replace("data: pictures", "data: text"))
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code != 0 and "ids.bin, ids" in ended.output and "vocabulary of 40" in ended.output, ended.output
