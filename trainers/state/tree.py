"""Nested plain data with tensors in it, taken apart into a JSON text and named arrays, and put together again.

The two halves go into a checkpoint's file or over the network. Nothing is pickled: dicts, lists, tuples, tensors, NumPy
arrays and plain values pass; anything else is refused by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

_PLAIN = " !#$&'()*+,:;<=>?@[]^`{|}~"
"""What quoting leaves as it is in names."""
_DEEPEST = 100
"""Levels of nesting that are written and read; JSON's readers take no more than Python's stack does."""
_SAME_WIDTH = {1: torch.uint8, 2: torch.int16}
"""Integers that carry the bits of the floating-point types that NumPy lacks (bfloat16, float8)."""


class Staying(dict[str, Tensor]):
    """Tensors by path that are not to be arrays, as they stay on devices of their kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind


@dataclass(frozen=True)
class Unread:
    """Stands in a tree for an array or a tensor that lies in a file.

    word: what stands for it in the tree's text. shape: of the array.
    """

    file: Path
    word: Mapping[str, str]
    shape: tuple[int, ...]

    @property
    def path(self) -> str:
        """Return under which path it lies there."""
        return _path_in(self.word)


def flatten(tree: Any, staying: Staying | None = None) -> tuple[str, dict[str, np.ndarray]]:
    """Return the tree as JSON that refers to arrays by path, and the arrays. TypeError names what cannot be stored.

    staying: takes the tensors of its kind of device, which are among the arrays else.
    """
    arrays: dict[str, np.ndarray] = {}
    return json.dumps(_take_apart(tree, "", arrays, Staying("") if staying is None else staying)), arrays


def unflatten(structure: str, arrays: Mapping[str, np.ndarray | Tensor]) -> Any:
    """Return the tree that `flatten` took apart; tensors are on the CPU, but for those given as tensors.

    ValueError, or another error of Python's, if no tree is written so.
    """
    return _put_together(_words(structure), lambda word: _array_of(word, arrays))


def unread(structure: str, file: Path, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return the tree that `flatten` took apart, but for its arrays, which lie in a file and stay there."""
    return _put_together(_words(structure), lambda word: Unread(file, word, shapes[_path_in(word)]))


def flatten_unread(tree: Any) -> tuple[str, dict[str, Unread]]:
    """Return, as `flatten` does, the JSON of a tree all of whose arrays lie in files, and these by their new paths."""
    arrays: dict[str, Any] = {}
    return json.dumps(_take_apart(tree, "", arrays, Staying(""))), arrays


def on_host(value: Any) -> Any:
    """Return a copy of a tree with its tensors on the CPU, which later changes to the original leave alone."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        copied = {key: on_host(item) for key, item in value.items()}
        return Counter(copied) if isinstance(value, Counter) else copied
    if isinstance(value, (list, tuple)):
        return type(value)(on_host(item) for item in value)
    return value


def encode(tree: Any) -> bytes:
    """Return a tree as one message."""
    structure, arrays = flatten(tree)
    header = json.dumps([structure, [[path, array.dtype.str, array.shape] for path, array in arrays.items()]]).encode()
    return b"".join([len(header).to_bytes(8, "little"), header, *(array.tobytes() for array in arrays.values())])


def decode(message: bytes) -> Any:
    """Return the tree of a message."""
    start = 8 + int.from_bytes(message[:8], "little")
    structure, entries = json.loads(message[8:start])
    arrays = {}
    for path, dtype, shape in entries:
        array = np.frombuffer(message, dtype=dtype, count=int(np.prod(shape)), offset=start)
        arrays[path] = array.reshape(shape).copy()
        start += array.nbytes
    return unflatten(structure, arrays)


def outline(message: bytes) -> str:
    """Return what a message holds besides the values of its arrays."""
    return message[8 : 8 + int.from_bytes(message[:8], "little")].decode()


def of_outline(text: str) -> Any:
    """Return a tree like the one of an outline, whose arrays are all zero."""
    header = text.encode()
    _, entries = json.loads(text)
    size = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for _, dtype, shape in entries)
    return decode(len(header).to_bytes(8, "little") + header + bytes(size))


def _take_apart(value: Any, path: str, arrays: dict[str, Any], staying: Staying) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if path.count("/") > _DEEPEST:
        raise TypeError(f"{path[:60]}... is nested in more than {_DEEPEST} others; a checkpoint takes no more")
    if isinstance(value, Tensor):
        if value.device.type == staying.kind:
            staying[path] = value
        else:
            arrays[path] = _to_numpy(value)
        return {"tensor": path, "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return {"array": path}
    if isinstance(value, Unread):
        arrays[path] = value
        return {**value.word, ("tensor" if "tensor" in value.word else "array"): path}
    if isinstance(value, (list, tuple)):
        items = [_take_apart(item, f"{path}/{index}", arrays, staying) for index, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {
            kind: [
                [_key(key, path), _take_apart(item, f"{path}/{_name(_key(key, path))}", arrays, staying)]
                for key, item in value.items()
            ]
        }
    raise TypeError(
        f"{path or 'the state'} holds a {type(value).__name__}, which a checkpoint cannot hold; it takes "
        "tensors, NumPy arrays, dicts, lists, tuples, strings, numbers and None"
    )


def _key(key: Any, path: str) -> str | int:
    if not isinstance(key, (str, int)):
        raise TypeError(f"{path or 'the state'} has the key {key!r}; a checkpoint takes strings and integers as keys")
    return key


def _name(key: str | int) -> str:
    """The key as part of a path, unlike any other key's: HDF5 takes no empty names, dots alone, or zero bytes."""
    if isinstance(key, int):
        return str(int(key))
    name = quote(key, safe=_PLAIN, errors="surrogatepass") or "%"
    return name if name.strip(".-0123456789") else f"%{ord(name[0]):02X}{name[1:]}"


def _words(structure: str) -> Any:
    try:
        return json.loads(structure)
    except RecursionError:
        raise ValueError("its tree is nested too deep") from None


def _put_together(value: Any, array_of: Callable[[Mapping[str, str]], Any], levels: int = 0) -> Any:
    if levels > _DEEPEST + 1:
        raise ValueError(f"its tree is nested in more than {_DEEPEST} levels")
    if isinstance(value, list):
        return [_put_together(item, array_of, levels + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value or "array" in value:
        return array_of(value)
    if "tuple" in value:
        return tuple(_put_together(item, array_of, levels + 1) for item in value["tuple"])
    ((kind, items),) = value.items()
    content = {_key(key, ""): _put_together(item, array_of, levels + 1) for key, item in items}
    return Counter(content) if kind == "counter" else content


def _array_of(word: Mapping[str, str], arrays: Mapping[str, np.ndarray | Tensor]) -> np.ndarray | Tensor:
    found = arrays[_path_in(word)]
    if "array" in word or isinstance(found, Tensor):
        return found
    dtype = getattr(torch, word["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no type {word['dtype'][:20]}")
    if found.size == 0:  # whose strides may be 0 in NumPy, and then torch gives no view of its bytes
        return torch.empty(found.shape, dtype=dtype)
    return torch.from_numpy(found).view(dtype)


def _path_in(word: Mapping[str, str]) -> str:
    return word["tensor"] if "tensor" in word else word["array"]


def _to_numpy(tensor: Tensor) -> np.ndarray:
    host = tensor.detach().cpu().contiguous()
    try:
        return np.asarray(host.numpy())
    except TypeError:
        return np.asarray(host.view(_SAME_WIDTH[host.element_size()]).numpy())
