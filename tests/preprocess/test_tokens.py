"""The source `tokens` cuts files of ids into samples, and says plainly what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import Dataset, DatasetSpec, SourceError, SourceSpec, open_source
from preprocess.samples.errors import SampleError
from preprocess.samples.order import TRAIN
from preprocess.sources.formats.tokens import IGNORED

END = 9


def saved(folder: Path, *files: list[int], dtype: str = "uint16", raw: bool = False) -> list[str]:
    paths = []
    for number, ids in enumerate(files):
        path = folder / f"part-{number}.{'bin' if raw else 'npy'}"
        array = np.array(ids, dtype)
        array.tofile(path) if raw else np.save(path, array)
        paths.append(str(path))
    return paths


def pairs(path: Any, **arguments: Any) -> list[tuple[list[int], list[int]]]:
    source = open_source("tokens", {"path": path, **arguments})
    found = [source.read(index) for index in range(len(source))]
    layout = source.layout
    for inputs, targets in found:
        assert (inputs.shape, inputs.dtype.name) == (layout.input_shape, layout.input_dtype)
        assert (targets.shape, targets.dtype.name) == (layout.target_shape, layout.target_dtype)
    return [(inputs.tolist(), targets.tolist()) for inputs, targets in found]


@pytest.mark.parametrize("raw", [False, True])
def test_a_target_is_its_input_shifted_by_one(tmp_path: Path, raw: bool) -> None:
    paths = saved(tmp_path, list(range(10)), [50, 51, 52, 53], [1], raw=raw)
    arguments = {"dtype": "uint16"} if raw else {}
    whole = [([0, 1, 2], [1, 2, 3]), ([3, 4, 5], [4, 5, 6]), ([6, 7, 8], [7, 8, 9]), ([50, 51, 52], [51, 52, 53])]
    assert pairs(paths, context=3, **arguments) == whole
    assert pairs(str(tmp_path / "part-*"), context=3, **arguments) == whole
    strided = pairs(paths[0], context=8, stride=1, **arguments)
    assert strided == [(list(range(8)), list(range(1, 9))), (list(range(1, 9)), list(range(2, 10)))]


@pytest.mark.parametrize(
    ("dtype", "carried"),
    [("uint8", "uint16"), ("uint16", "uint16"), (">u2", "uint16"), ("int32", "uint32"), ("int64", "int64")],
)
def test_ids_are_carried_in_few_bytes(tmp_path: Path, dtype: str, carried: str) -> None:
    (path,) = saved(tmp_path, [5, 200, 7, 8], dtype=dtype)
    source = open_source("tokens", {"path": path, "context": 3})
    assert (source.layout.input_dtype, source.layout.target_dtype) == (carried, carried)
    assert pairs(path, context=3) == [([5, 200, 7], [200, 7, 8])]
    documents = open_source("tokens", {"path": path, "context": 3, "packing": "documents", "end": 8})
    assert documents.layout.target_dtype == ("int32" if carried == "uint16" else "int64")


def test_whole_documents_fill_a_sample_and_a_long_one_is_cut(tmp_path: Path) -> None:
    ids = [1, END, 2, 2, END, 3, 3, 3, 3, 3, 3, 3, END, END, 4]
    (path,) = saved(tmp_path, ids)
    assert pairs(path, context=4, packing="documents", end=END) == [
        ([1, END, 2, 2], [END, 2, 2, END]),
        ([3, 3, 3, 3], [3, 3, 3, 3]),
        ([3, 3, 3, END], [3, 3, END, END]),
    ]


@settings(deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(0, 8), max_size=9), min_size=1, max_size=8),
    is_ended=st.booleans(),
    context=st.integers(1, 6),
)
def test_every_id_of_a_document_is_predicted_once(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], is_ended: bool, context: int
) -> None:
    ids = [number for document in documents for number in (*document, END)]
    ids = ids if is_ended else ids[:-1]
    (path,) = saved(tmp_path_factory.mktemp("ids"), ids)
    try:
        found = pairs(path, context=context, packing="documents", end=END)
    except SourceError as error:
        assert "no file has more than" in str(error)
        found = []
    real = [[target for target in targets if target != IGNORED] for _, targets in found]
    for (inputs, targets), some in zip(found, real):
        assert some and targets[: len(some)] == some and inputs[1 : len(some)] == some[:-1]
    # All ids come in their order but those that open a document that opens a sample: these follow no other.
    openings = len(ids) - sum(map(len, real))
    assert openings <= len(documents)
    assert _is_subsequence([target for some in real for target in some], ids)


def _is_subsequence(few: list[int], many: list[int]) -> bool:
    left = iter(many)
    return all(number in left for number in few)


def test_a_sample_never_depends_on_what_was_read_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = saved(tmp_path, *(rng.integers(0, END + 1, size).tolist() for size in (300, 7, 1000)))
    for arguments in ({"stride": 3}, {"packing": "documents", "end": END}):
        forward = open_source("tokens", {"path": paths, "context": 16, **arguments})
        order = rng.permutation(len(forward)).tolist()
        again = open_source("tokens", {"path": paths, "context": 16, **arguments})
        mixed = {index: [part.tolist() for part in again.read(index)] for index in order}
        assert [mixed[i] for i in range(len(forward))] == [
            [part.tolist() for part in forward.read(i)] for i in range(len(forward))
        ]


def test_an_id_that_cannot_be_names_its_place(tmp_path: Path) -> None:
    (path,) = saved(tmp_path, [1, 2, 3, 4, 100, 6, 7], dtype="int32")
    spec = DatasetSpec("text", SourceSpec("tokens", {"path": path, "context": 3, "vocabulary": 50}))
    data = Dataset(spec)
    inputs, targets = data.layout.empty(1)
    data.make(TRAIN, 0, 0, 0, inputs[0], targets)
    with pytest.raises(SampleError, match=r"part-0.npy, ids 3 to 6: 100 is among them.*vocabulary of 50"):
        data.make(TRAIN, 0, 0, 1, inputs[0], targets)
    (path,) = saved(tmp_path, [1, -2, 3, 4], dtype="int32")
    with pytest.raises(ValueError, match="-2 is among them, and ids are at least 0"):
        open_source("tokens", {"path": path, "context": 3}).read(0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs the argument 'context'"),
        ({"context": 0}, "0: context is a whole number of at least 1"),
        ({"context": 3, "stride": 2.5}, "stride is a whole number"),
        ({"context": 30}, "a sample needs 31 ids, one more than context, and no file has more than 10; lower context"),
        ({"context": 3, "packing": "document", "end": 9}, "did you mean 'documents'"),
        ({"context": 3, "packing": "documents"}, "add end: and that id"),
        ({"context": 3, "packing": "documents", "end": 9, "stride": 1}, "leave out stride"),
        ({"context": 3, "end": 9}, "leave out end, or add packing: documents"),
        ({"context": 3, "packing": "documents", "end": 70000}, "ids of uint16 are smaller"),
        ({"context": 3, "packing": "documents", "end": 9, "vocabulary": 9}, "has ids up to 8"),
        ({"context": 3, "dtype": "uint8"}, "says itself that it holds uint16; leave out dtype"),
        ({"context": 3, "dtype": "unit16"}, "did you mean 'uint16'"),
        ({"context": 3, "path": "raw.bin"}, "add dtype: uint16"),
        ({"context": 3, "path": "raw.bin", "dtype": "uint32"}, "21 bytes, which are no whole number of uint32"),
        ({"context": 3, "path": "floats.npy"}, "holds float64 of shape .* whole numbers in one row"),
        ({"context": 3, "path": "table.npy"}, "holds uint16 of shape .2, 5."),
        ({"context": 3, "path": "cut.npy"}, "NumPy cannot read it"),
        ({"context": 3, "path": "empty.bin", "dtype": "uint16"}, "no file has more than 0"),
        ({"context": 3, "path": "missing.npy"}, "no file is called so, seen from"),
        ({"context": 3, "path": []}, "names no file"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], text: str) -> None:
    monkeypatch.chdir(tmp_path)
    (path,) = saved(tmp_path, list(range(10)))
    np.save("floats.npy", np.zeros(10))
    np.save("table.npy", np.zeros((2, 5), np.uint16))
    Path("raw.bin").write_bytes(b"x" * 21)
    Path("empty.bin").write_bytes(b"")
    Path("cut.npy").write_bytes(Path(path).read_bytes()[:-3])
    with pytest.raises(SourceError, match=text):
        open_source("tokens", {"path": path, **arguments})
