"""What a power cut may leave of a folder: ALICE's method (Pillai et al., OSDI'14), over what the shim recorded.

A call is on the disk for certain once its file, or for a name its folder, was synced afterwards. Of all other calls
any may be there and any may not: in whole, as a hole of the right length, or torn.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.faults.support.shim import Call

FOLDER = -1
_NAMES = frozenset({"create", "rename", "unlink", "mkdir"})
_DRAWN = 2  # random choices a cut
_OF_A_FILE = 4  # of its loose writes, how many are left out one by one


@dataclass(frozen=True)
class Disk:
    """Files and folders.

    Attributes:
        names: path -> the file's inode, or FOLDER.
        data: inode -> content.
    """

    names: Mapping[str, int] = field(default_factory=dict)
    data: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Disk:
        """What lies in a folder, and the folder."""
        names, data = {str(folder): FOLDER}, {}
        for path in sorted(folder.rglob("*")):
            names[str(path)] = FOLDER if path.is_dir() else path.stat().st_ino
            if not path.is_dir():
                data[path.stat().st_ino] = path.read_bytes()
        return cls(names, data)

    @property
    def content(self) -> dict[str, bytes | None]:
        """By path, of what can be reached; None for a folder."""
        known = {path for path, inode in self.names.items() if inode == FOLDER}
        roots = {path for path in known if str(PurePosixPath(path).parent) not in known}
        root = min(roots, key=len, default="")
        reached = {root} & known
        for path in sorted(self.names, key=len):
            if str(PurePosixPath(path).parent) in reached:
                reached.add(path)
        return {p: None if self.names[p] == FOLDER else self.data.get(self.names[p], b"") for p in sorted(reached)}

    def write(self, old: Path, new: Path) -> None:
        """Make what lay in `old` in `new`, an empty folder."""
        for path, data in self.content.items():
            place = new / Path(path).relative_to(old)
            if data is None:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(data)

    @property
    def digest(self) -> str:
        """Equal for equal content."""
        digest = hashlib.blake2b()
        for path, data in self.content.items():
            digest.update(f"{path} {-1 if data is None else len(data)}\n".encode() + (data or b""))
        return digest.hexdigest()


@dataclass(frozen=True)
class Choice:
    """Which calls are on the disk: by number, in whole, with zeros for data, and with the first half of it."""

    whole: frozenset[int]
    holes: frozenset[int] = frozenset()
    torn: frozenset[int] = frozenset()


def disk_after(before: Disk, calls: Sequence[Call], choice: Choice) -> Disk:
    """What is there if the chosen calls are."""
    names, data = dict(before.names), {inode: bytearray(content) for inode, content in before.data.items()}
    for number in sorted(choice.whole | choice.holes | choice.torn):
        call = calls[number]
        if call.kind == "write":
            bits = call.data[: len(call.data) // 2] if number in choice.torn else call.data
            bits = bytes(len(bits)) if number in choice.holes else bits
            _write(data.setdefault(call.inode, bytearray()), call.offset, bits)
        elif call.kind == "truncate":
            file = data.setdefault(call.inode, bytearray())
            file[:] = file[: call.offset].ljust(call.offset, b"\0")
        elif call.kind == "create":
            names[call.path] = call.inode
        elif call.kind == "mkdir":
            names[call.path] = FOLDER
        elif call.kind == "unlink":
            names.pop(call.path, None)
        elif call.kind == "rename":
            names.pop(call.path, None)
            names[call.to] = call.inode
    return Disk(names, {inode: bytes(content) for inode, content in data.items()})


def _write(file: bytearray, offset: int, data: bytes) -> None:
    file.extend(bytes(max(0, offset - len(file))))
    file[offset : offset + len(data)] = data


def with_own_inodes(calls: Iterable[Call]) -> list[Call]:
    """The same calls, with a number for each file that nothing else has: the system gives inodes out again."""
    own: dict[int, int] = {}
    found = []
    for number, call in enumerate(calls):
        if call.kind == "create":
            own[call.inode] = (1 << 40) + number
        found.append(Call(call.kind, own.get(call.inode, call.inode), call.offset, call.path, call.to, call.data))
    return found


def synced(calls: Sequence[Call], cut: int) -> frozenset[int]:
    """Which of the calls before the cut are on the disk for certain."""
    safe: set[int] = set()
    loose: list[int] = []
    for number, call in enumerate(calls[:cut]):
        if call.kind == "sync":
            now = {each for each in loose if _covers(call, calls[each])}
            safe |= now
            loose = [each for each in loose if each not in now]
        elif call.kind != "open":
            loose.append(number)
    return frozenset(safe)


def _covers(sync: Call, call: Call) -> bool:
    if call.kind in _NAMES:
        return sync.path in {str(PurePosixPath(path).parent) for path in (call.path, call.to) if path}
    return sync.inode == call.inode


def cuts(calls: Sequence[Call]) -> list[int]:
    """The moments that matter: before the first and after the last of the writes that a file gets in a row."""
    return [
        cut
        for cut in range(len(calls) + 1)
        if not 0 < cut < len(calls)
        or (calls[cut - 1].kind, calls[cut - 1].inode) != ("write", calls[cut].inode)
        or calls[cut].kind != "write"
    ]


def _some(calls: Sequence[Call], loose: Sequence[int], draw: random.Random) -> list[int]:
    """The loose calls, but of the writes to one file a few."""
    writes: dict[int, list[int]] = {}
    for each in loose:
        if calls[each].kind == "write":
            writes.setdefault(calls[each].inode, []).append(each)
    few = {each for of in writes.values() for each in draw.sample(of, min(len(of), _OF_A_FILE))}
    return [each for each in loose if calls[each].kind != "write" or each in few]


def choices(calls: Sequence[Call], cut: int, draw: random.Random) -> Iterator[Choice]:
    """What may be on the disk after a cut: everything, what is certain, all but one, one alone; and some drawn."""
    safe = synced(calls, cut)
    loose = frozenset(n for n in range(cut) if calls[n].kind not in ("open", "sync")) - safe
    yield Choice(safe | loose)
    yield Choice(safe)
    for each in _some(calls, sorted(loose), draw):
        yield Choice((safe | loose) - {each})
        yield Choice(safe | {each})
        if calls[each].kind == "write":
            yield Choice((safe | loose) - {each}, holes=frozenset({each}))
            yield Choice((safe | loose) - {each}, torn=frozenset({each}))
    for _ in range(_DRAWN if len(loose) > 2 else 0):
        yield Choice(safe | frozenset(each for each in loose if draw.random() < 0.5))
