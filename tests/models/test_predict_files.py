"""Networks predict samples that are no data set of their run: files and folders, with labels and without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fleet.commands.cli import app
from fleet.models.errors import ModelsError
from fleet.models.validation_data import samples_of
from fleet.spec import load
from preprocess import SourceError
from preprocess.conversion.convert import convert
from tests.live.support import parts
from tests.live.support.ensembles import RunFolder, mlp, write_ensemble
from tests.live.support.processes import FLEET, run
from tests.models.support.held_out_arrays import held_out_arrays

MEMBERS = ("--members", "mlp,cnn")


def predict(run_folder: RunFolder, *words: object) -> Result:
    return CliRunner().invoke(app, ["predict", str(run_folder.path), *MEMBERS, *(str(word) for word in words)])


def told(run_folder: RunFolder, *words: object) -> dict[str, Any]:
    done = predict(run_folder, *words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return {key: value for key, value in found.items() if key != "seconds"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run's held-out pictures in files of several kinds."""
    folder = tmp_path_factory.mktemp("files")
    inputs, targets = held_out_arrays()
    np.savez(folder / "both.npz", inputs=inputs, targets=targets)
    np.savez(folder / "inputs.npz", inputs=inputs)
    np.save(folder / "pictures.npy", inputs)
    with h5py.File(folder / "both.h5", "w") as both, h5py.File(folder / "inputs.h5", "w") as alone:
        both["inputs"], both["targets"], alone["inputs"] = inputs, targets, inputs
    (folder / "loose").mkdir()
    for number, picture in enumerate(inputs):
        Image.fromarray(picture[..., 0]).save(folder / "loose" / f"{number:02d}.png")
    _write_classes(folder, inputs, targets)
    return folder


def _write_classes(folder: Path, inputs: np.ndarray, targets: np.ndarray) -> None:
    """A folder for each class, and an archive of the same pictures in the same order; each class has some."""
    pairs = [*zip(inputs, targets.tolist()), *((inputs[0], target) for target in range(parts.CLASSES))]
    order = sorted(range(len(pairs)), key=lambda number: (pairs[number][1], number))
    for number in order:
        picture, target = pairs[number]
        named = folder / "classes" / str(target)
        named.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture[..., 0]).save(named / f"{number:02d}.png")
    rows, wanted = np.stack([pairs[number][0] for number in order]), np.array([pairs[number][1] for number in order])
    np.savez(folder / "sorted.npz", inputs=rows, targets=wanted)


def test_files_with_labels_have_the_figures_of_the_same_samples(trained: RunFolder, files: Path) -> None:
    own = told(trained)
    assert own["labelled"] and own["samples"] == parts.HELD_OUT
    for name in ("both.npz", "both.h5"):
        assert told(trained, "--data", files / name) == own, name


def test_a_folder_for_each_class_gives_its_labels(trained: RunFolder, files: Path) -> None:
    found = told(trained, "--data", files / "classes")
    assert found["samples"] == parts.HELD_OUT + parts.CLASSES
    assert found == told(trained, "--data", files / "sorted.npz")


@pytest.mark.parametrize("name", ["inputs.npz", "pictures.npy", "inputs.h5", "loose"])
def test_files_without_labels_are_predicted_alone(trained: RunFolder, files: Path, tmp_path: Path, name: str) -> None:
    ours, theirs = tmp_path / "own.h5", tmp_path / "file.h5"
    told(trained, "--out", ours)
    found = told(trained, "--data", files / name, "--out", theirs)
    assert (
        not found["labelled"] and found["members"] == {} and found["ensemble"].keys() == {"disagreement", "diversity"}
    )
    with h5py.File(ours) as own, h5py.File(theirs) as file:
        assert "targets" not in file and np.array_equal(own["members"][()], file["members"][()])
        if name == "loose":
            paths = [Path(text.decode()).name for text in file["samples"][()]]
            assert paths == [f"{number:02d}.png" for number in range(parts.HELD_OUT)]
    text = predict(trained, "--data", files / name, "--out", theirs).output
    assert f"on {parts.HELD_OUT} samples without labels" in text and "all together" not in text


def test_an_image_alone_is_a_file_too(trained: RunFolder, files: Path, tmp_path: Path) -> None:
    assert told(trained, "--data", files / "loose" / "03.png", "--out", tmp_path / "one.h5")["samples"] == 1


def test_ranks_predict_files_alike(trained: RunFolder, files: Path, tmp_path: Path) -> None:
    file, alone = tmp_path / "ranks.h5", tmp_path / "alone.h5"
    words = ["predict", str(trained.path), *MEMBERS, "--data", str(files / "loose")]
    ended = run([*FLEET, *words, "--ranks", "2", "--out", str(file)], tmp_path)
    assert ended.code == 0 and "samples without labels" in ended.output, ended.output
    told(trained, "--data", files / "loose", "--out", alone)
    with h5py.File(file) as one, h5py.File(alone) as other:
        assert np.array_equal(one["members"][()], other["members"][()])


def test_what_a_file_cannot_give_is_told_in_words(trained: RunFolder, files: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the ship leaks\n")
    np.savez(tmp_path / "wide.npz", inputs=np.zeros((3, 12, 20, 1), np.uint8), targets=np.zeros(3, np.int64))
    np.savez(tmp_path / "many.npz", inputs=np.zeros((3, 12, 12, 1), np.uint8), targets=np.full(3, 44))
    for words, text in (
        (("--data", files / "loose"), "has no labels, so how good networks are cannot be told; write"),
        (
            ("--data", files / "loose", "--out", tmp_path / "x.h5", "--members", "greedy:2"),
            "--members greedy needs labels",
        ),
        (("--data", tmp_path / "nothing.npz"), "no such file or folder"),
        (("--data", tmp_path / "notes.txt"), "is no kind of data that is known"),
        (("--data", tmp_path / "wide.npz"), "job mlp does not take samples of shape (12, 20, 1)"),
        (("--data", tmp_path / "many.npz"), "knows 10 classes, and a target is 44"),
    ):
        done = predict(trained, *words)
        assert done.exit_code == 2 and text in done.output, done.output
        assert not (tmp_path / "x.h5").exists()


def test_classes_keep_the_numbers_that_networks_learnt(tmp_path: Path) -> None:
    """Of a folder that lacks classes, and of converted files, whose held-out part is taken."""
    picture = Image.fromarray(np.full((12, 12), 200, np.uint8))
    for part, names in (("train", "abc"), ("new", "c"), ("both/train", "abc"), ("both/val", "cb")):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            picture.save(tmp_path / part / name / "0.png")
    source = {"source": "image_folder", "arguments": {"path": str(tmp_path / "train"), "channels": 1}}
    spec = load(write_ensemble(tmp_path / "spec", [mlp()], data={"pictures": {"train": source}}).spec)
    convert(tmp_path / "both", tmp_path / "both.h5", workers=1)
    for name, classes in (("new", [2]), ("both", [1, 2]), ("both.h5", [1, 2])):
        samples = samples_of(spec, spec.jobs, str(tmp_path / name))
        inputs, targets = samples.batch(0, 8)
        assert inputs.shape[1:] == (12, 12, 1 if name != "both.h5" else 3), name
        assert targets is not None and targets.tolist() == classes, name
    (tmp_path / "new" / "d").mkdir()
    picture.save(tmp_path / "new" / "d" / "0.png")
    with pytest.raises(SourceError, match="has this class, and classes has not: a, b, c"):
        samples_of(spec, spec.jobs, str(tmp_path / "new"))
    (tmp_path / "train").rename(tmp_path / "elsewhere")
    with pytest.raises(ModelsError, match="training samples, which number them, cannot be opened; put them back"):
        samples_of(spec, spec.jobs, str(tmp_path / "new"))
