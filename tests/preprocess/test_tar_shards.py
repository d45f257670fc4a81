"""The source `tar` gives the samples of WebDataset's shards, and says plainly what is wrong with one."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from preprocess import Source, SourceError, open_source
from preprocess.conversion.convert import convert
from preprocess.sources import tar_shards as tar_fields
from tests.preprocess.support.image_files import add, encoded, make_shard, smooth


def samples_of(first: int, count: int, label: object = None) -> list[tuple[str, bytes, object]]:
    return [
        (f"sample{i:05}", encoded(smooth(i), "jpg"), i % 3 if label is None else label)
        for i in range(first, first + count)
    ]


def contents(source: Source) -> list[tuple[bytes, int]]:
    return [(bytes(content), int(label)) for content, label in (source.read(i) for i in range(len(source)))]


@pytest.mark.parametrize("form", ["pattern", "list", "folder"])
def test_shards_are_read_in_order(tmp_path: Path, form: str) -> None:
    whole = samples_of(0, 11)
    for number in range(3):
        make_shard(tmp_path / f"train-{number}.tar", whole[4 * number : 4 * number + 4])
    path = {
        "pattern": str(tmp_path / "train-*.tar"),
        "list": [str(tmp_path / f"train-{number}.tar") for number in range(3)],
        "folder": str(tmp_path),
    }[form]
    for _ in range(2):  # the second time from the kept indices
        source = open_source("tar", {"path": path})
        assert getattr(source, "encoded", False) and source.layout.input_shape == (20, 24, 3)
        assert contents(source) == [(content, label) for _, content, label in whole]
        assert len(list(tmp_path.glob("*.tar.index"))) == 3


def test_kept_index_is_that_of_this_very_shard(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    make_shard(shard, samples_of(0, 3))
    open_source("tar", {"path": str(shard)})
    first = (tmp_path / "a.tar.index").read_bytes()
    make_shard(shard, samples_of(5, 4))
    assert len(open_source("tar", {"path": str(shard)})) == 4
    assert (tmp_path / "a.tar.index").read_bytes() != first
    (tmp_path / "a.tar.index").write_bytes(first[:50])
    assert contents(open_source("tar", {"path": str(shard)})) == [(c, n) for _, c, n in samples_of(5, 4)]


def test_index_that_cannot_be_kept_is_done_without(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    make_shard(shard, samples_of(0, 2))
    (tmp_path / "a.tar.index").mkdir()
    assert len(open_source("tar", {"path": str(shard)})) == 2


def test_classes_by_name_and_from_json(tmp_path: Path) -> None:
    image = encoded(smooth(0), "png")
    make_shard(tmp_path / "names.tar", [("a", image, "dog"), ("b", image, "cat"), ("c", image, "dog")], "png")
    named = open_source("tar", {"path": str(tmp_path / "names.tar")})
    assert named.classes == ("cat", "dog") and [n for _, n in contents(named)] == [1, 0, 1]  # type: ignore[attr-defined]
    given = open_source("tar", {"path": str(tmp_path / "names.tar"), "classes": ["dog", "cow", "cat"]})
    assert [n for _, n in contents(given)] == [0, 2, 0]
    make_shard(tmp_path / "json.tar", [("a", image, {"label": 7}), ("b", image, {"label": -2, "other": "x"})], "png")
    assert [n for _, n in contents(open_source("tar", {"path": str(tmp_path / "json.tar")}))] == [7, -2]
    with pytest.raises(
        SourceError, match="no number, name or list of numbers under 'other'; name the key by label: KEY"
    ):
        open_source("tar", {"path": str(tmp_path / "json.tar"), "label": "other"})


def test_keys_are_paths_up_to_the_first_dot(tmp_path: Path) -> None:
    image = encoded(smooth(0), "jpg")
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        add(shard, "x/1.cls", b"4")
        add(shard, "x/1.seg.png", b"a mask, not an image")
        add(shard, "x/1.jpg", image)
        add(shard, "y/1.JPG", image)
        add(shard, "y/1.cls", b"5\n")
        add(shard, "README", b"no dot")
        add(shard, "notes.txt", b"no image")
        shard.addfile(tarfile.TarInfo("folder"))
    assert contents(open_source("tar", {"path": str(tmp_path / "a.tar")})) == [(image, 4), (image, 5)]


def test_many_shards_do_not_use_up_the_files_of_a_process(tmp_path: Path) -> None:
    whole = samples_of(0, 140)
    for number, sample in enumerate(whole):
        make_shard(tmp_path / f"{number:03}.tar", [sample])
    source = open_source("tar", {"path": str(tmp_path / "*.tar")})
    before = len(os.listdir("/proc/self/fd"))
    assert len(contents(source)) == 140
    assert len(os.listdir("/proc/self/fd")) - before <= 128
    assert contents(source)[0][0] == whole[0][1]
    assert len(pickle.loads(pickle.dumps(source))) == 140
    del source
    assert len(os.listdir("/proc/self/fd")) <= before  # another source may have gone meanwhile


def test_mistakes_are_told(tmp_path: Path) -> None:
    def refused(text: str, path: object = tmp_path / "a.tar", **arguments: object) -> None:
        with pytest.raises(SourceError, match=text) as caught:
            open_source("tar", {"path": str(path) if isinstance(path, Path) else path, **arguments})
        assert "\n" not in str(caught.value)

    image = encoded(smooth(0), "jpg")
    refused("no file is called so, seen from .*; give a shard, a pattern")
    refused("names no file", [])
    (tmp_path / "a.tar").write_bytes(b"no tar" * 500)
    refused("is not a whole, uncompressed tar file")
    (tmp_path / "a.tar").write_bytes(b"")
    refused("is not a whole, uncompressed tar file")
    make_shard(tmp_path / "a.tar", samples_of(0, 3))
    whole = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(gzip.compress(whole))
    refused("is a compressed tar file, in which no sample .* all before it; unpack it with gunzip and give the .tar")
    make_shard(tmp_path / "a.tar", samples_of(0, 3))
    with tarfile.open(tmp_path / "a.tar") as shard:
        second = shard.getmembers()[2].offset
    for cut in (300, second - 512, second - 1, second, second + 100, second + 600):
        (tmp_path / "a.tar").write_bytes(whole[:cut])
        refused("is not a whole, uncompressed tar file")
    (tmp_path / "a.tar").write_bytes(whole[:second] + b"x" + whole[second + 1 :])
    refused(f"at byte {second} is neither a member nor the end")
    make_shard(tmp_path / "a.tar", [("a", image, "")])
    refused("a.cls': is empty; write the class's number or name")
    make_shard(tmp_path / "a.tar", [("a", image, 1), ("b", image, "dog")])
    refused("some of its classes are numbers and some are names")
    make_shard(tmp_path / "a.tar", [("a", image, 1), ("a", image, 2)])
    refused("has 'a.jpg' twice")
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        add(shard, "a.jpg", image)
        add(shard, "a.png", image)
        add(shard, "a.cls", b"1")
    refused("the sample 'a' has two images, a.jpg and a.png")
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        add(shard, "a.jpg", image)
    refused("the sample 'a' has no class; add a.cls")
    with tarfile.open(tmp_path / "a.tar", "w") as shard:
        add(shard, "a.txt", b"text")
    refused("holds no images; name them KEY.jpg")
    make_shard(tmp_path / "a.tar", [("a", image, 1)])
    refused("the shards number their classes; leave out classes", classes=["x"])
    refused("3 channels or to 1", channels=2)


def test_shard_that_was_cut_after_it_was_indexed_is_told(tmp_path: Path) -> None:
    make_shard(tmp_path / "a.tar", samples_of(0, 3))
    source = open_source("tar", {"path": str(tmp_path / "a.tar")})
    os.truncate(tmp_path / "a.tar", 600)
    with pytest.raises(SourceError, match="has 88 of its .* bytes: the shard is cut short; copy the shard anew"):
        source.read(0)


def write(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w") as shard:
        for name, content in members.items():
            add(shard, name, content)
    return str(path)


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def test_fields_are_chosen_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(5, 3, 4)).astype(np.float32), rng.normal(size=(5, 2))
    members: dict[str, bytes] = {}
    for i in range(5):
        members[f"{i}.x.npy"], members[f"{i}.y.npy"] = npy(inputs[i]), npy(targets[i])
        members[f"{i}.packed.npy.gz"] = gzip.compress(npy(inputs[i]))
        members[f"{i}.mask.png"], members[f"{i}.jpg"] = encoded(smooth(i), "png"), encoded(smooth(i), "jpg")
        members[f"{i}.json"] = json.dumps({"label": i, "where": [i, i + 0.5], "depth": i / 4}).encode()
        members[f"{i}.txt"], members[f"{i}.name.txt.gz"] = str(i / 2).encode(), gzip.compress(b"cat")
    path = write(tmp_path / "a.tar", members)
    np.savez(tmp_path / "same.npz", inputs=inputs, targets=targets)
    same = open_source("numpy", {"path": str(tmp_path / "same.npz")})
    for ending in ("x.npy", "packed.npy.gz"):
        for _ in range(2):  # the second time from the kept index
            found = open_source("tar", {"path": path, "inputs": ending, "targets": "y.npy"})
            assert found.layout == same.layout and not found.encoded  # type: ignore[attr-defined]
            for mine, theirs in zip(map(found.read, range(5)), map(same.read, range(5))):
                assert np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])
    picture = open_source("tar", {"path": path, "inputs": "mask.png", "targets": "json", "label": "where"})
    assert picture.layout.target_shape == (2,) and picture.layout.target_dtype == "float64"
    assert bytes(picture.read(3)[0]) == members["3.mask.png"] and picture.read(3)[1].tolist() == [3, 3.5]
    for targets_of, label, wanted in (("txt", "label", 1.5), ("json", "depth", 0.75), (None, "label", 3)):
        source = open_source("tar", {"path": path, "targets": targets_of, "label": label})
        assert source.read(3)[1] == wanted and source.layout.target_shape == ()
    named = open_source("tar", {"path": path, "targets": "name.txt.gz"})
    assert named.classes == ("cat",) and named.read(0)[1] == 0  # type: ignore[attr-defined]
    convert(path, tmp_path / "a.h5", arguments={"inputs": "x.npy", "targets": "y.npy"}, workers=1)
    kept = open_source("hdf5", {"path": str(tmp_path / "a.h5")})
    assert all(np.array_equal(kept.read(i)[n], same.read(i)[n]) for i in range(5) for n in (0, 1))


def test_mistakes_with_fields_are_told(tmp_path: Path) -> None:
    def refused(text: str, members: dict[str, bytes], **arguments: object) -> None:
        with pytest.raises(SourceError, match=text) as caught:
            source = open_source("tar", {"path": write(tmp_path / "a.tar", members), **arguments})
            assert source.layout and source.read(0)
        assert "\n" not in str(caught.value)

    array = npy([1.0, 2.0])
    refused("an input is an image .* or an array", {"a.npy": array}, inputs="mp4")
    refused("a target is a cls, txt, json or npy file", {"a.npy": array}, inputs="npy", targets="jpg")
    refused("inputs is the ending of a member's name", {"a.npy": array}, inputs=3)
    refused("holds no member KEY.x.npy; name the inputs' ending", {"a.npy": array}, inputs="x.npy")
    refused("'a' has no y.npy; it has npy: name one by targets", {"a.npy": array}, inputs="npy", targets="y.npy")
    refused("is no .npy file of numbers", {"a.npy": b"no array", "a.cls": b"1"}, inputs="npy")
    refused("is no .npy file of numbers", {"a.npy": npy(["text"]), "a.cls": b"1"}, inputs="npy")
    refused(
        "the target of .* is no .npy file|is no .npy file",
        {"a.x.npy": array, "a.y.npy": b""},
        inputs="x.npy",
        targets="y.npy",
    )
    refused("gzip file that does not unpack", {"a.npy.gz": array, "a.cls": b"1"}, inputs="npy.gz")
    refused("gzip file that is cut off", {"a.npy.gz": gzip.compress(array)[:-9], "a.cls": b"1"}, inputs="npy.gz")
    lists = {"a.npy": array, "a.json": b'{"label": [1, 2]}', "b.npy": array, "b.json": b'{"label": [1]}'}
    refused("its targets have different shapes", lists, inputs="npy")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "a.tgz").write_bytes(gzip.compress(bytes(1024)))
    with pytest.raises(SourceError, match="is a compressed tar file.*gunzip"):
        open_source("tar", {"path": str(tmp_path / "packed")})
    (tmp_path / "packed" / "a.tgz").unlink()
    with pytest.raises(SourceError, match="is a folder without files that end in .tar; give a shard"):
        open_source("tar", {"path": str(tmp_path / "packed")})


def test_packed_members_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_fields, "MOST_BYTES", 1000)
    path = write(tmp_path / "a.tar", {"a.npy.gz": gzip.compress(npy(np.zeros(1000))), "a.cls": b"1"})
    with pytest.raises(SourceError, match="unpacks to more than 1000 bytes"):
        open_source("tar", {"path": path, "inputs": "npy.gz"}).read(0)
