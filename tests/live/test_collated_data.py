"""Samples of any shape from a section of data, without a task class: made once for all, with the bits of DDP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.support.ensembles import RunFolder, write_ensemble
from tests.live.support.processes import FLEET, Ended, run

MODULE = "tests.live.support.ragged"


def section(**keys: Any) -> dict[str, Any]:
    """The data section, some of whose samples are trained on."""
    train, held_out = ({"source": f"{MODULE}:Sentences", "arguments": {"count": count}} for count in (50, 11))
    collate = {"name": "pad", "arguments": {"mask": True}}
    return {"train": {**train, "subset": 40}, "held_out": held_out, "collate": collate, **keys}


def trained_on(
    folder: Path, data: dict[str, Any], batch_size: int = 4, preprocessors: int = 1, **more: Any
) -> tuple[Ended, RunFolder]:
    jobs = [
        {"name": n, "model": {"name": f"{MODULE}:Reader", "arguments": {"width": w}}} for n, w in (("a", 6), ("b", 8))
    ]
    defaults = {
        "data": "sentences",
        "optimizer": {"name": "AdamW", "arguments": {"lr": 0.02}},
        "metrics": ["accuracy"],
        "virtual_workers": 2,
        "batch_size": 4,
        "stop": {"epochs": 2},
    }
    resources = {"trainers": 2, "preprocessors": 1, "device": "cpu", "ring_samples": 64, "slot_samples": 8}
    defaults |= {"batch_size": batch_size}
    resources |= {"preprocessors": preprocessors}
    ensemble = write_ensemble(folder, jobs, data={"sentences": data}, defaults=defaults, resources=resources, **more)
    return run(ensemble.plain("run"), folder), ensemble.left("run")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Rates are measured, so on batches of the largest sample, too."""
    ended, folder = trained_on(tmp_path_factory.mktemp("collated"), section(), measured=False, profile={"batches": 2})
    assert ended.code == 0, ended.output
    return folder


def test_two_networks_read_samples_of_any_shape(trained: RunFolder) -> None:
    assert {job["status"] for job in trained.summary["jobs"].values()} == {"done"}
    assert {event["stream"].partition("/")[0] for event in trained.events("started")} == {"sentences"}


@pytest.mark.parametrize("job", ["a", pytest.param("b", marks=pytest.mark.slow)])
def test_under_stock_ddp_it_has_the_bits_of_the_run(trained: RunFolder, job: str) -> None:
    ended = run([*FLEET, "replay", str(trained.path), job, "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_step_need_not_find_room_at_its_largest(tmp_path: Path, kept: bool) -> None:
    """Samples could be so large that two slots of each preprocessor hold half a step; they are kept, or made anew."""
    data = section(sample_bytes=100_000, **({"store": True} if kept else {}))
    data["train"] = {"source": f"{MODULE}:Sentences", "arguments": {"count": 130, "longest": 900}}
    ended, folder = trained_on(tmp_path, data, batch_size=32, preprocessors=2)
    assert ended.code == 0, ended.output
    replayed = run([*FLEET, "replay", str(folder.path), "a", "--ddp"], tmp_path)
    assert replayed.code == 0 and "equal: every bit" in replayed.output, replayed.output


@pytest.mark.parametrize(
    ("giant", "texts"),
    [
        (3, ["600: sample_bytes is too few: one of the first 64 samples takes", "leave sample_bytes out"]),
        (80, ["sample 80 takes 8", "the data's sample_bytes", "raise the data's sample_bytes"]),
    ],
)
def test_a_sample_larger_than_was_said_is_named(tmp_path: Path, giant: int, texts: list[str]) -> None:
    longer = {"source": f"{MODULE}:Sentences", "arguments": {"count": 90, "giant": giant}}
    ended, _ = trained_on(tmp_path, section(train=longer, sample_bytes=600))
    assert ended.code != 0, ended.output
    assert all(text in ended.output for text in texts), ended.output


def test_one_that_is_corrupt_is_skipped(tmp_path: Path) -> None:
    """It is larger than was said, and another sample is taken in its place."""
    longer = {"source": f"{MODULE}:Sentences", "arguments": {"count": 90, "giant": 80}}
    ended, folder = trained_on(tmp_path, section(train=longer, sample_bytes=600, on_corrupt="skip"))
    assert ended.code == 0, ended.output
    assert [event["sample"] for event in folder.events("skipped")] == [80]


def test_without_collate_trees_are_refused_with_the_mend(tmp_path: Path) -> None:
    ended, _ = trained_on(tmp_path, {"train": section()["train"]})
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    assert "the input of its sample 0 is a dict" in ended.output and "add collate: pad" in ended.output, ended.output


def test_an_iterable_style_data_set_is_refused_with_the_mend(tmp_path: Path) -> None:
    ended, _ = trained_on(tmp_path, {"train": {"source": f"{MODULE}:Stream"}})
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    assert "a Stream, an iterable-style data set" in ended.output and "__getitem__" in ended.output, ended.output
