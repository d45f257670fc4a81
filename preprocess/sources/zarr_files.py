"""The files of a Zarr store, checked on their way to the library: what it reads is what was checked.

A codec is named by the metadata, and some of them unpickle, which runs code. So metadata are held against the codecs
that hold numbers before the library sees them. Consolidated metadata, which say the same once more, are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from preprocess.files.memory import BLOCK_BYTES, check_claim
from preprocess.files.reading import MOST_JSON_BYTES, NotAFile, open_descriptor, read_bytes
from preprocess.samples.errors import SourceError
from preprocess.sources.checked_files import DamageError

MEND = "copy it anew from where it came, or write it anew"
NAMES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
"""What files of metadata are called."""

_CODECS = frozenset(
    {"bytes", "transpose", "sharding_indexed", "delta", "shuffle", "bitround", "fixedscaleoffset", "quantize"}
    | {"astype", "packbits", "blosc", "zstd", "gzip", "zlib", "bz2", "lzma", "lz4"}
    | {"adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"}
)


def opened_group(path: str) -> Any:
    """Open the group of a store with the library, of version 2 or 3, which reads through `_read` alone.

    Raises:
        SourceError: its metadata name a codec that may run code.
    """
    import zarr

    if zarr.__version__.startswith("2."):
        return zarr.open_group(_FilesOf2(path), mode="r")  # type: ignore[arg-type]
    return zarr.open_group(_files_of_3(path), mode="r", use_consolidated=False)


def check_opened(array: Any, path: str, name: str) -> None:
    """Hold the codecs of an opened array against those that hold numbers, whatever its files say. Raises SourceError"""
    metadata = getattr(array, "metadata", None)  # of zarr 3
    if metadata is None:
        codecs = [codec for codec in (array.compressor, *(array.filters or ())) if codec is not None]
        noted = {"filters": [codec.get_config() for codec in codecs]}
    else:
        noted = metadata.to_dict()
    _check_codecs(noted, os.path.join(path, name))
    if array.path.strip("/") != name:
        raise SourceError(
            name, f"{path} gives another array for it, {array.path!r}", "name arrays by their plain names"
        )


class _FilesOf2(MutableMapping[str, bytes]):
    """A store as zarr 2 takes it; the library sees that nothing is written."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)

    def __getitem__(self, key: str) -> bytes:
        found = _read(self._root, key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and not key.endswith(".zmetadata") and (self._root / key).is_file()

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __setitem__(self, key: str, value: bytes) -> None:
        raise PermissionError(key)

    def __delitem__(self, key: str) -> None:
        raise PermissionError(key)


def _files_of_3(path: str) -> Any:
    """A store as zarr 3 takes it."""
    import asyncio

    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import LocalStore

    class Files(LocalStore):
        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            return await asyncio.to_thread(self.get_sync, key, prototype=prototype, byte_range=byte_range)

        def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
            part = slice(None)
            if isinstance(byte_range, RangeByteRequest):
                part = slice(byte_range.start, byte_range.end)
            elif isinstance(byte_range, OffsetByteRequest):
                part = slice(byte_range.offset, None)
            elif isinstance(byte_range, SuffixByteRequest):
                part = slice(-byte_range.suffix, None)
            found = _read(self.root, key, part)
            return None if found is None else (prototype or default_buffer_prototype()).buffer.from_bytes(found)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> Any:
            return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    return Files(Path(path), read_only=True)


def _read(root: Path, key: str, part: slice = slice(None)) -> bytes | None:
    """Return what a file of the store holds, or a part of it; None where there is none, or it is left out.

    Raises:
        SourceError: it is metadata with a codec that may run code.
        NotAFile, NeedsTooMuchMemory: it is no file, or too large.
    """
    path = root / key
    name = path.name
    if name == ".zmetadata":
        return None
    try:
        if name in NAMES:
            content = read_bytes(path, MOST_JSON_BYTES)
            _check_metadata(content, path)
            return content[part]
        return _bytes_of(path, part)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotAFile:
        if path.is_dir():
            return None
        raise


def _bytes_of(path: Path, part: slice) -> bytes:
    descriptor = open_descriptor(path)
    try:
        found = os.fstat(descriptor)
        start, stop, _ = part.indices(found.st_size)
        check_claim(path, stop - start, stored=BLOCK_BYTES * found.st_blocks)
        return os.pread(descriptor, max(stop - start, 0), start)
    finally:
        os.close(descriptor)


def _check_metadata(content: bytes, path: Path) -> None:
    try:
        noted = json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise DamageError(str(path), f"it is not JSON ({' '.join(str(cause).split())})", MEND) from cause
    if not isinstance(noted, dict):
        raise DamageError(str(path), "it does not hold names and values", MEND)
    if path.name in (".zarray", "zarr.json"):
        _check_codecs(noted, str(path))


def _check_codecs(noted: dict[str, Any], path: str) -> None:
    """Refuse metadata of an array that name any codec but those that hold numbers."""
    waiting = [noted.get("compressor"), noted.get("filters"), noted.get("codecs")]
    while waiting:
        codec = waiting.pop()
        if codec is None:
            continue
        if isinstance(codec, (list, tuple)):
            waiting += codec
            continue
        inner: Any = None
        if isinstance(codec, dict):
            inner, codec = codec.get("configuration"), codec.get("name", codec.get("id"))
        if not isinstance(codec, str) or codec.removeprefix("numcodecs.") not in _CODECS:
            rule = f"has values of the codec {str(codec)[:40]!r}, which is none of those that hold numbers"
            raise SourceError(path, f"{rule} and may run code when read", "write it as numbers")
        if isinstance(inner, dict):
            waiting += [inner.get("codecs"), inner.get("index_codecs")]
