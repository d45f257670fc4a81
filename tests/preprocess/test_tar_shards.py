"""The source `tar` gives the samples of WebDataset's shards, and says plainly what is wrong with one."""

from __future__ import annotations

import gzip
import os
import pickle
import tarfile
from pathlib import Path

import pytest

from preprocess import Source, SourceError, open_source
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
    with pytest.raises(SourceError, match="no number or name under 'other'; name the key by label: KEY"):
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
    assert len(os.listdir("/proc/self/fd")) == before


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
    refused("uncompressed tar file .*gunzip")
    make_shard(tmp_path / "a.tar", samples_of(0, 3))
    with tarfile.open(tmp_path / "a.tar") as shard:
        second = shard.getmembers()[2].offset
    for cut in (300, second - 512, second - 1, second, second + 100, second + 600):
        (tmp_path / "a.tar").write_bytes(whole[:cut])
        refused("is not a whole, uncompressed tar file")
    (tmp_path / "a.tar").write_bytes(whole[:second] + b"x" + whole[second + 1 :])
    refused(f"at byte {second} is neither a member nor the end")
    make_shard(tmp_path / "a.tar", [("a", image, "")])
    refused("a.cls is empty; add a.cls with the class's number or name")
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
