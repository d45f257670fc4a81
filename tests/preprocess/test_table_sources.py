"""The sources `parquet` and `arrow` give what the same content gives as NumPy, and say plainly what is wrong."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocess import Source, SourceError, open_source
from preprocess.conversion.convert import convert
from preprocess.conversion.packing import ConversionError
from preprocess.sources import checked_files as optional_package
from preprocess.sources.formats.tables import Rows
from tests.preprocess.support.tables import ROWS, images, numbers, save_to_disk, write_file, write_parquet, write_stream

FORMS = ("parquet", "parquet folder", "arrow file", "feather", "arrow stream", "saved", "saved dictionary")


def written(form: str, folder: Path, table: pa.Table) -> tuple[str, dict[str, Any]]:
    """The source that reads the table, and its arguments."""
    if form.startswith("parquet"):
        folder = folder / "parts"
        folder.mkdir()
        write_parquet(folder / "0.parquet", table.slice(0, 7))
        write_parquet(folder / "1.parquet", table.slice(7), group=2)
        return "parquet", {"path": str(folder) if form.endswith("folder") else str(folder / "*.parquet")}
    if form == "arrow file":
        return "arrow", {"path": write_file(folder / "a.arrow", table)}
    if form == "feather":
        return "arrow", {"path": write_file(folder / "a.feather", table, compression="lz4")}
    plain = pa.table(
        [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for c in table.columns], table.schema.names
    )
    plain = plain.replace_schema_metadata(table.schema.metadata)
    if form == "arrow stream":
        write_stream(folder / "a.arrow", plain)
        return "arrow", {"path": str(folder / "a.arrow")}
    if form == "saved":
        return "arrow", {"path": save_to_disk(folder / "saved", plain)}
    save_to_disk(folder / "both" / "train", plain)
    (folder / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    return "arrow", {"path": str(folder / "both"), "split": "train"}


def contents(source: Source) -> tuple[np.ndarray, np.ndarray]:
    pairs = [source.read(index) for index in range(len(source))]
    return np.stack([image for image, _ in pairs]), np.stack([np.asarray(target) for _, target in pairs])


@pytest.mark.parametrize("form", FORMS)
def test_samples_are_those_of_numpy(form: str, tmp_path: Path) -> None:
    table = numbers()
    kind, where = written(form, tmp_path, table)
    columns = {name: np.array(table.column(name).to_pylist()) for name in ("a", "b", "list", "fixed", "grid", "label")}
    columns["list"] = columns["list"].astype(np.float32)
    columns["grid"] = columns["grid"].astype(np.uint8)
    np.savez(tmp_path / "same.npz", allow_pickle=False, **columns)
    for inputs, targets in (("list", "label"), ("grid", "fixed"), ("b", "a"), ("fixed", "list")):
        same = open_source("numpy", {"path": str(tmp_path / "same.npz"), "inputs": inputs, "targets": targets})
        found = open_source(kind, {**where, "inputs": inputs, "targets": targets})
        assert isinstance(found, Source) and found.layout == same.layout and len(found) == ROWS
        for mine, theirs in zip(contents(found), contents(same)):
            assert mine.dtype == theirs.dtype or theirs.dtype.kind == "i"
            assert np.array_equal(mine, theirs)
    joined = open_source(kind, {**where, "inputs": ["a", "fixed", "b"], "targets": ["label"], "dtype": "float32"})
    wanted = np.column_stack([columns["a"], columns["fixed"], columns["b"]]).astype(np.float32)
    assert np.array_equal(contents(joined)[0], wanted) and joined.layout.input_dtype == "float32"
    assert np.array_equal(contents(joined)[1], columns["label"][:, None])
    arranged = open_source(kind, {**where, "inputs": "list", "targets": "a", "shape": [2, 3], "dtype": "float32"})
    assert np.array_equal(contents(arranged)[0], columns["list"].reshape(-1, 2, 3))
    assert arranged.layout.target_dtype == "float32"


@pytest.mark.parametrize("form", FORMS)
def test_texts_name_classes(form: str, tmp_path: Path) -> None:
    table = numbers()
    kind, where = written(form, tmp_path, table)
    for column, given, classes in (
        ("name", None, ("cat", "dog")),
        ("name", ["dog", "cow", "cat"], ("dog", "cow", "cat")),
        ("kind", None, ("x", "y", "z")),
    ):
        more = {} if given is None else {"classes": given}
        source = open_source(kind, {**where, "inputs": "a", "targets": column, **more})
        assert source.classes == classes  # type: ignore[attr-defined]
        assert [classes[n] for n in contents(source)[1]] == table.column(column).to_pylist()
    source = open_source(kind, {**where, "inputs": "a", "targets": "name", "classes": ["dog"]})
    with pytest.raises(SourceError, match="row 1 has this class, and classes has not: dog; add it to classes"):
        source.read(1)


@pytest.mark.parametrize("form", FORMS)
def test_images_are_read_as_they_are(form: str, tmp_path: Path) -> None:
    table, files = images()
    kind, where = written(form, tmp_path, table)
    source = open_source(kind, {**where, "inputs": "image", "targets": "label"})
    assert getattr(source, "encoded", False) and source.layout.input_shape == (20, 24, 3)
    assert [bytes(source.read(i)[0]) for i in range(ROWS)] == files
    assert [int(source.read(i)[1]) for i in range(ROWS)] == [i % 2 for i in range(ROWS)]
    if "arrow" not in form and form != "feather":
        assert source.classes == ("calm", "rough")  # type: ignore[attr-defined]
    told = open_source(kind, {**where, "inputs": "image", "targets": "label", "size": [7, 9], "channels": 1})
    assert told.layout.input_shape == (7, 9, 1), "no header is read"


@pytest.mark.parametrize("form", FORMS)
def test_other_processes_read_the_same(form: str, tmp_path: Path) -> None:
    table, files = images()
    kind, where = written(form, tmp_path, table)
    source = open_source(kind, {**where, "inputs": "image", "targets": "label"})
    source.read(ROWS - 1)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put([bytes(source.read(i)[0]) for i in range(ROWS)]))
    child.start()
    assert queue.get() == files
    child.join()
    again = pickle.loads(pickle.dumps(source))
    assert [bytes(again.read(i)[0]) for i in range(ROWS)] == files


def test_a_row_group_is_read_once_while_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.table({"x": np.arange(4000.0), "y": np.arange(4000)}), group=1000)
    read: list[int] = []
    whole = pq.ParquetFile.read_row_group

    def noted(self: Any, group: int, **options: Any) -> Any:
        read.append(group)
        return whole(self, group, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", noted)
    order = [3500, 10, 1500, 2500] * 3
    source = open_source("parquet", {"path": path, "inputs": "x", "targets": "y"})
    assert read == [0], "the first sample tells the layout"
    assert [source.read(index)[1] for index in order] == order
    assert sorted(read) == [0, 1, 2, 3]
    read.clear()
    narrow = open_source("parquet", {"path": path, "inputs": "x", "targets": "y", "cache": 0.04})  # two of 16 kB
    assert [narrow.read(index)[1] for index in order] == order
    assert len(read) == 12 and isinstance(narrow._rows, Rows) and len(narrow._rows._kept) <= 2  # type: ignore[attr-defined]


def test_no_file_stays_open(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", numbers())
    before = len(os.listdir("/proc/self/fd"))
    source = open_source("parquet", {"path": path, "inputs": "list", "targets": "label"})
    contents(source)
    assert len(os.listdir("/proc/self/fd")) == before


Refused = Callable[..., None]


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    def check(text: str, kind: str = "parquet", **arguments: Any) -> None:
        given = {"path": str(tmp_path / "a.parquet"), "inputs": "list", "targets": "label", **arguments}
        with pytest.raises(SourceError, match=text) as caught:
            source = open_source(kind, {k: str(v) if isinstance(v, Path) else v for k, v in given.items()})
            contents(source)
        assert "\n" not in str(caught.value)

    return check


def test_mistakes_are_told(tmp_path: Path, refused: Refused) -> None:
    refused("no file is called so, seen from .*; give a Parquet file, a pattern")
    table = numbers()
    write_parquet(tmp_path / "a.parquet", table)
    refused("no such column; name a column by inputs: did you mean 'list'", inputs="lists")
    refused("no such column; name a column by targets: .*known: a, b", targets="zzz")
    refused("inputs names a column, or a list of them", inputs=[])
    refused("columns that are joined hold numbers .*; name it alone: inputs: grid", inputs=["a", "grid"])
    refused("has texts in this column; name a column of numbers or images", inputs="name")
    refused("'label' numbers its classes; leave out classes", classes=["x"])
    refused("has 6 numbers, which do not fit this shape; let the product", shape=[5, 5])
    refused("dtype is a number's; write dtype: float32", dtype="word")
    refused("size is that of image files, and the inputs are numbers", size=[1, 2])
    refused("cache is MiB of chunks", cache=-1)
    refused("no such argument; .*known: cache, channels, classes", rows=3)
    times = pa.table({"t": pa.array([1, 2], pa.timestamp("s")), "label": [1, 2]})
    write_parquet(tmp_path / "a.parquet", times)
    refused(r"column 't' is of the type timestamp\[ms\], of which no sample is made; make numbers", inputs="t")
    write_parquet(tmp_path / "a.parquet", pa.table({"list": [[1, 2], [1, 2, 3]], "label": [0, None]}))
    refused(r"row 1: its 'label' is missing \(null\); mend or drop such rows|row 1'.*missing")
    refused(r"has the shape \(3,\), the first one's is \(2,\); pad or cut", targets="list")
    write_parquet(tmp_path / "a.parquet", table.slice(0, 0))
    refused("has no rows; give a file that is not empty")
    image, _ = images()
    write_parquet(tmp_path / "a.parquet", image)
    refused("holds image files, which have their own shape and dtype", inputs="image", dtype="float32")
    refused("has bytes in this column, and a target is a number", inputs="label", targets="image")
    refused("size is the height and the width", inputs="image", size=[3])
    refused("3 channels or to 1", inputs="image", channels=2)


def test_parts_and_files_that_do_not_go_together(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "data").mkdir()
    for name in ("train-00000-of-00001", "test-00000-of-00001"):
        write_parquet(tmp_path / "data" / f"{name}.parquet", numbers())
    refused(
        r"parts of the data: test, train; give one of them, such as path: .*data/train\*.parquet",
        path=tmp_path / "data",
    )
    assert len(open_source("parquet", {"path": str(tmp_path / "data/train*"), "inputs": "a", "targets": "b"})) == ROWS
    write_parquet(tmp_path / "a.parquet", numbers().drop_columns(["b"]))
    paths = [str(tmp_path / "a.parquet"), str(tmp_path / "data" / "test-00000-of-00001.parquet")]
    refused("its columns are not those of .*a.parquet: .*b: int64", path=paths)


def test_saved_folders_that_are_not_right(tmp_path: Path, refused: Refused) -> None:
    table, _ = images()
    folder = Path(save_to_disk(tmp_path / "saved", table))
    told = {"kind": "arrow", "inputs": "image", "path": folder}
    refused("has no dataset_dict.json, so it is a single part; leave out split", split="train", **told)
    (folder / "data-00001-of-00002.arrow").unlink()
    refused("there is no such file; copy the data set whole", **told)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../secret.arrow"}]}')
    refused("its state.json names no files in this folder", **told)
    (folder / "state.json").write_text("[")
    refused("state.json.*cannot be read.*save the data set anew", **told)
    save_to_disk(tmp_path / "chosen", table, _indices_files=[{"filename": "indices.arrow"}])
    refused("rows are chosen by a file of indices.*flatten_indices", **{**told, "path": tmp_path / "chosen"})
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    refused("has several parts; add split: train or test", **{**told, "path": tmp_path})
    refused("no such part; did you mean 'train'", **{**told, "path": tmp_path}, split="trian")
    refused("has no state.json", **{**told, "path": tmp_path}, split="train")
    refused("not a folder of several parts", kind="arrow", path=tmp_path / "a.arrow", split="x")
    write_stream(tmp_path / "categories.arrow", numbers())
    refused("stream with columns of categories", kind="arrow", path=tmp_path / "categories.arrow")


def test_damaged_files_are_refused(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "a.parquet"
    write_parquet(path, numbers())
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[:-9], whole[: len(whole) // 2], b"no parquet" * 50):
        path.write_bytes(content)
        refused("cannot be read")
    start = pq.ParquetFile(pa.BufferReader(whole)).metadata.row_group(2).column(2).data_page_offset
    path.write_bytes(whole[:start] + bytes(8) + whole[start + 8 :])
    refused("its row group 2 cannot be read .*; convert it anew, or copy it anew")
    write_file(tmp_path / "a.arrow", numbers())
    whole = (tmp_path / "a.arrow").read_bytes()
    for content in (b"", b"ARROW1", whole[:-9], whole[: len(whole) // 2], b"no arrow" * 50):
        (tmp_path / "a.arrow").write_bytes(content)
        refused("cannot be read|is empty", kind="arrow", path=tmp_path / "a.arrow")
    texts = pa.table({"x": pa.array(["ab", "cd"]), "label": [0, 1]})
    write_file(tmp_path / "a.arrow", texts)
    content = (tmp_path / "a.arrow").read_bytes()
    offsets = np.array([0, 2, 4], np.int32).tobytes()
    assert content.count(offsets) == 1
    (tmp_path / "a.arrow").write_bytes(content.replace(offsets, np.array([0, 2, 2**30], np.int32).tobytes()))
    refused("its record batch 0 cannot be read", kind="arrow", path=tmp_path / "a.arrow", inputs="label", targets="x")


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(optional_package, "import_module", missing)
    refused(
        r"takes the package pyarrow, which is not installed; pip install 'fleet-hpc\[parquet\]', or pip install pyarrow"
    )
    refused("to read Arrow files takes the package pyarrow", kind="arrow")


def test_conversion(tmp_path: Path) -> None:
    image, files = images()
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", image)
    write_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet", image.slice(0, 3))
    for part, rows in (("train", image), ("test", image.slice(0, 3))):
        save_to_disk(tmp_path / "saved" / part, rows)
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["test", "train"]}')
    for name in ("data", "saved"):
        arguments = {"images": "image", "labels": "label"}
        made = convert(tmp_path / name, tmp_path / f"{name}.h5", arguments=arguments, workers=2)
        assert [(s.name, s.samples, s.encoding, s.classes) for s in made.splits] == [
            ("train", ROWS, "files", ("calm", "rough")), ("held_out", 3, "files", ("calm", "rough")),
        ]  # fmt: skip
        source = open_source("hdf5", {"path": str(tmp_path / f"{name}.h5")})
        assert [bytes(source.read(i)[0]) for i in range(ROWS)] == files
    path = write_parquet(tmp_path / "n.parquet", numbers())
    convert(path, tmp_path / "n.h5", held_out=path, arguments={"inputs": "list", "targets": "name"}, workers=1)
    same = open_source("parquet", {"path": path, "inputs": "list", "targets": "name"})
    for split in ("train", "held_out"):
        found = open_source("hdf5", {"path": str(tmp_path / "n.h5"), "split": split})
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(contents(found), contents(same)))
    with pytest.raises(ConversionError, match="which of its columns .*; name them: --images COLUMN --labels COLUMN"):
        convert(path, tmp_path / "x.h5")
    convert(path, tmp_path / "vectors.h5", arguments={"inputs": ["a", "b"], "targets": "fixed"}, workers=1)
    assert open_source("hdf5", {"path": str(tmp_path / "vectors.h5")}).layout.target_shape == (2,)
