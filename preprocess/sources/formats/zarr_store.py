"""Zarr stores on disk: windows of the arrays of a group, whose files are checked on their way to the library.

A codec is named by the metadata, and some of them unpickle, which runs code. So metadata are held against the codecs
that hold numbers before the library sees them. Consolidated metadata, which say the same once more, are left out.

Of a chunk that is cut off, Blosc unpacks what lies behind it in memory. And two megabytes of zlib may unpack to two
gigabytes, whatever the metadata say of the chunk; so what could is unpacked in pieces first, and counted.
"""

from __future__ import annotations

import bz2
import itertools
import json
import lzma
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from preprocess.files.memory import BLOCK_BYTES, SMALL_BYTES, check_claim
from preprocess.files.reading import MOST_JSON_BYTES, NotAFile, open_descriptor, read_bytes
from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.sources.checked_files import DamageError, damage_named, needed
from preprocess.sources.formats.windows import MEND, WindowArguments, WindowSource

NAMES = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
"""What files of metadata are called."""

_CODECS = frozenset(
    {"bytes", "transpose", "sharding_indexed", "delta", "shuffle", "bitround", "fixedscaleoffset", "quantize"}
    | {"astype", "packbits", "blosc", "zstd", "gzip", "zlib", "bz2", "lzma", "lz4"}
    | {"adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"}
)


def _opened_group(path: str) -> Any:
    """Open the group of a store with the library, of version 2 or 3, which reads through `_read` alone.

    Raises:
        SourceError: its metadata name a codec that may run code.
    """
    import zarr

    if zarr.__version__.startswith("2."):
        return zarr.open_group(_FilesOf2(path), mode="r")  # type: ignore[arg-type]
    return zarr.open_group(_files_of_3(path), mode="r", use_consolidated=False)


def _check_opened(array: Any, path: str, name: str) -> None:
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


_BLOSC = struct.Struct("<4xI4xI")  # of Blosc: the bytes that it unpacks to, and its own size, header included
_LZ4 = struct.Struct("<I")  # of numcodecs' LZ4: the bytes that it unpacks to
_ZSTD = b"\x28\xb5\x2f\xfd"
_HEADER_BYTES = 18  # of zstd's, the longest
_PIECE = 1 << 16
_ZLIB_EXPANSION = 1032  # the most
_STREAMS: dict[str, Callable[[], Any]] = {
    "zlib": zlib.decompressobj,
    "gzip": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    "bz2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
}
_PACKED = frozenset({"blosc", "lz4", "zstd", *_STREAMS})
_WIDER, _MORE = 16, 1 << 16
"""By what filters may widen a chunk's numbers while they are packed, and bytes that any file may unpack to."""


class CheckedArray:
    """A Zarr array whose chunks are looked at before they are unpacked.

    Attributes:
        shape, dtype, chunks, attrs: the array's.

    Args:
        array: the opened array.
        path: the folder of its store.

    Raises:
        NeedsTooMuchMemory: a chunk takes more than may be taken.
    """

    def __init__(self, array: Any, path: str) -> None:
        self._array, self._root = array, Path(path)
        self.shape, self.dtype, self.chunks, self.attrs = array.shape, array.dtype, array.chunks, array.attrs
        self._grid = getattr(array, "shards", None) or array.chunks
        """What lies in one file."""
        self._codec = _outer_codec(array)
        self._folder = self._root / array.path.strip("/")
        check_claim(self._folder, self._bytes(self.chunks), "a chunk")

    def __getitem__(self, steps: slice) -> Any:
        """Read these steps.

        Raises:
            DamageError: a chunk is cut off.
            NeedsTooMuchMemory: they take more than their chunks can hold, or than may be taken.
        """
        stop = min(steps.stop, self.shape[0])
        claimed = max(self._bytes((stop - steps.start, *self.shape[1:])), self._bytes(self.chunks))
        if self._codec in _PACKED or claimed > SMALL_BYTES:
            stored = sum(self._check(self._root / self._key(place)) for place in self._places(steps.start, stop))
            check_claim(self._folder, claimed, f"steps {steps.start} to {stop}", stored)
        return self._array[steps]

    def _places(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        """Yield the places, in numbers of files, of the files that hold these steps."""
        sides = [range(-(-length // chunk)) for length, chunk in zip(self.shape[1:], self._grid[1:])]
        return itertools.product(range(start // self._grid[0], -(-stop // self._grid[0])), *sides)

    def _key(self, place: tuple[int, ...]) -> str:
        """The file there, seen from the store's folder."""
        metadata = getattr(self._array, "metadata", None)
        if metadata is None:  # zarr 2
            return str(self._array._chunk_key(place))
        return f"{self._array.path.strip('/')}/{metadata.encode_chunk_key(place)}"

    def _check(self, file: Path) -> int:
        """Return the bytes of a file of chunks; 0 if there is none, since its values are the fill value."""
        try:
            descriptor = open_descriptor(file)
        except FileNotFoundError:
            return 0
        with os.fdopen(descriptor, "rb") as opened:
            size = os.fstat(descriptor).st_size
            header = opened.read(_HEADER_BYTES)
            if self._codec == "blosc":
                whole = len(header) >= _BLOSC.size
                unpacked, own = _BLOSC.unpack_from(header) if whole else (0, 0)
                if own != size:
                    told = f"{own} bytes" if whole else "a header"
                    raise DamageError(str(file), f"has {size} bytes, and should have {told}", MEND)
            else:
                unpacked = _told_bytes(self._codec, header)
            most = _WIDER * self._bytes(self._grid) + _MORE
            if unpacked <= most and self._codec in _STREAMS:
                unpacked = self._counted(opened, size, most)
        if unpacked > most:
            told = f"unpacks to {'more than ' if self._codec in _STREAMS else ''}{unpacked:,} bytes"
            raise DamageError(str(file), f"{told}, and its array has {self._bytes(self._grid):,} in a file", MEND)
        return size

    def _counted(self, file: BinaryIO, size: int, most: int) -> int:
        """Return how many bytes a stream unpacks to, counted until it is more than `most`; 0 where it cannot matter."""
        if self._codec in ("zlib", "gzip") and size * _ZLIB_EXPANSION <= max(SMALL_BYTES, most):
            return 0
        file.seek(0)
        found, stream, rest = 0, _STREAMS[self._codec](), b""
        try:
            while found <= most and (piece := rest or file.read(_PIECE)):
                found += len(stream.decompress(piece, _PIECE))
                rest = getattr(stream, "unconsumed_tail", b"")
                while found <= most and not rest and not stream.eof and not getattr(stream, "needs_input", True):
                    found += len(stream.decompress(b"", _PIECE))
                if stream.eof:  # of one part; others may follow
                    rest, stream = stream.unused_data, _STREAMS[self._codec]()
        except (zlib.error, lzma.LZMAError, OSError, EOFError):
            pass  # damage: the library tells it
        return found

    def _bytes(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape) * int(self.dtype.itemsize)


def _told_bytes(codec: str, header: bytes) -> int:
    """Return the bytes to which a file says that it unpacks; 0 where it does not say."""
    if codec == "lz4" and len(header) >= _LZ4.size:
        return int(_LZ4.unpack_from(header)[0])
    if codec != "zstd" or not header.startswith(_ZSTD) or len(header) < 6:
        return 0
    kind = header[4]  # RFC 8878, 3.1.1.1
    is_single = bool(kind & 0x20)
    size = (1 if is_single else 0, 2, 4, 8)[kind >> 6]
    start = 5 + (not is_single) + (0, 1, 2, 4)[kind & 3]
    return int.from_bytes(header[start : start + size], "little") + (256 if size == 2 else 0)


def _outer_codec(array: Any) -> str:
    """Return the codec that packed the files of an array last."""
    metadata = getattr(array, "metadata", None)
    if metadata is None:  # zarr 2
        return "" if array.compressor is None else str(array.compressor.codec_id)
    noted = metadata.to_dict()
    codec = noted["codecs"][-1] if noted.get("codecs") else noted.get("compressor") or {}
    return str(codec.get("name", codec.get("id", ""))).removeprefix("numcodecs.")


def open_zarr(
    path: str,
    inputs: str | Sequence[str],
    targets: str | Sequence[str],
    window: int = 1,
    lead: int = 1,
    target_window: int = 1,
    stride: int = 1,
    dtype: str | None = None,
    fill: float | None = None,
    cache: float = 512,
) -> WindowSource:
    """Open a Zarr store, of format 2 or 3.

    Args:
        path: its folder, which holds a group.
        inputs, targets, window, lead, target_window, stride, dtype, fill, cache: see `WindowArguments`.

    Raises:
        SourceError: zarr is not installed, there is no such store, or the arguments do not fit it.
    """
    needed("zarr", "zarr", "zarr", "Zarr stores")
    if not os.path.isdir(path):
        rule = "is a file, not the folder of a store" if os.path.exists(path) else "there is no such folder"
        raise SourceError(
            str(path), rule, f"paths are relative to {Path.cwd()}; unpack or copy a store onto a disk first"
        )
    arguments = WindowArguments(inputs, targets, window, lead, target_window, stride, dtype, fill, cache)
    return WindowSource(str(path), _variables, arguments)


def _variables(path: str, names: Sequence[str]) -> Mapping[str, Any]:
    with damage_named(path, "it", mend="give the folder of a Zarr group"):
        group = _opened_group(path)
    found = {}
    for name in names:
        _check_name(name, path)
        with damage_named(path, f"its array {name!r}", mend=MEND):
            if name not in group or not hasattr(array := group[name], "chunks"):
                raise SourceError(name, f"{path} holds no such array", spelling_advice(name, _arrays(path)))
            _check_opened(array, path, name)
            found[name] = CheckedArray(array, path)
    return found


def _check_name(name: str, path: str) -> None:
    """Refuse a name that would be looked for anywhere but below the store."""
    parts = name.split("/")
    if "\\" in name or any(part in ("", ".", "..") for part in parts):
        mend = "name an array by its groups and its own name, such as group/array"
        raise SourceError(name, f"{path} has no array of such a name: it leads out of the store", mend)


def _arrays(path: str) -> list[str]:
    """The names of what lies in a store."""
    return [entry.name for entry in os.scandir(path) if any(Path(entry, kind).is_file() for kind in NAMES)]
