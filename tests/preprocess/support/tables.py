"""Parquet and Arrow files of the same samples, and folders such as Hugging Face's `datasets` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.preprocess.support.image_files import encoded, smooth

ROWS = 10


def numbers() -> pa.Table:
    """Columns of numbers of every form, and texts."""
    rng = np.random.default_rng(0)
    grids = rng.integers(0, 256, (ROWS, 4, 3), np.uint8)
    return pa.table(
        {
            "a": pa.array(rng.normal(size=ROWS)),
            "b": pa.array(rng.integers(0, 9, ROWS)),
            "list": pa.array(rng.normal(size=(ROWS, 6)).astype(np.float32).tolist(), pa.list_(pa.float32())),
            "fixed": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(ROWS * 2.0)), 2),
            "grid": pa.array(grids.tolist(), pa.list_(pa.list_(pa.uint8()))),
            "name": pa.array([("dog", "cat")[i % 2] for i in range(ROWS)]),
            "kind": pa.array([("x", "y", "z")[i % 3] for i in range(ROWS)]).dictionary_encode(),
            "label": pa.array(np.arange(ROWS, dtype=np.int32) % 4),
        }
    )


def images() -> tuple[pa.Table, list[bytes]]:
    """Images as Hugging Face stores them, with classes that are named in the schema."""
    contents = [encoded(smooth(i), "jpg") for i in range(ROWS)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array([{"bytes": content, "path": f"{i}.jpg"} for i, content in enumerate(contents)], kind)
    features = {"image": {"_type": "Image"}, "label": {"names": ["calm", "rough"], "_type": "ClassLabel"}}
    table = pa.table({"image": column, "label": pa.array([i % 2 for i in range(ROWS)])})
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), contents


def write_parquet(path: Path, table: pa.Table, group: int = 4, **options: Any) -> str:
    """Write a Parquet file with row groups of so many rows."""
    pq.write_table(table, path, row_group_size=group, **options)
    return str(path)


def write_stream(path: Path, table: pa.Table, batch: int = 4) -> None:
    """Write Arrow's stream format, as `datasets` does."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)


def write_file(path: Path, table: pa.Table, batch: int = 4, **options: Any) -> str:
    """Write Arrow's file format."""
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table, max_chunksize=batch)
    return str(path)


def save_to_disk(folder: Path, table: pa.Table, files: int = 2, **state: Any) -> str:
    """Write what `datasets.Dataset.save_to_disk` writes, version 4: the files, state.json and dataset_info.json."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{files:05}.arrow" for number in range(files)]
    step = -(-len(table) // files)
    for number, name in enumerate(names):
        write_stream(folder / name, table.slice(number * step, step))
    noted: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "a1b2",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "state.json").write_text(json.dumps(noted | state))
    metadata = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    info = json.loads(metadata).get("info", {"features": {}})
    (folder / "dataset_info.json").write_text(json.dumps({"citation": "", "description": "", **info}))
    return str(folder)
