"""Networks fed by one of several libraries: one process that imports it, and forks a process for each network.

python -m benchmarks.peer_networks write FOLDER         the pictures as MDS, with MosaicML's own writer
python -m benchmarks.peer_networks WAY ARGUMENTS        K networks, which read an epoch for each line of standard input

All decode, cut out, scale and flip by the same code. No network looks at the pixels.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.pictures import SIDE, pictures
from preprocess.transforms.transform import build_transforms

__all__ = ["BATCH", "PEERS"]

BATCH = 64
PEERS = {"tensorsocket": "TensorSocket", "mosaic": "MosaicML Streaming", "webdataset": "WebDataset"}
_SHARDS = 4
_JOIN_SECONDS, _SETTLE_SECONDS = 15.0, 2.0  # subscriptions take a while, and who misses the first message waits on

Batches = Iterable[Any]


class Work:
    """What is done with the bytes of a picture; random draws are this network's own."""

    def __init__(self, seed: int) -> None:
        self._pipeline = build_transforms(pictures(Path("unused")).transforms, True, 3)
        self._rng = np.random.default_rng(seed)

    def __call__(self, content: bytes) -> torch.Tensor:
        out = np.empty((SIDE, SIDE, 3), np.uint8)
        self._pipeline.apply_into(np.frombuffer(content, np.uint8), self._rng, out)
        return torch.from_numpy(out)


class Files(torch.utils.data.Dataset[Any]):
    """The pictures as files, one of which is a sample."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._paths, self._work = sorted(folder.rglob("*.jpg")), Work(seed)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._work(self._paths[index].read_bytes()), index


def _loader(samples: Any, shuffle: bool | None) -> Batches:
    return torch.utils.data.DataLoader(samples, BATCH, shuffle=shuffle, num_workers=1, persistent_workers=True)


def _loaders(given: dict[str, Any], number: int) -> Batches:
    return _loader(Files(Path(given["folder"], "pictures"), number), shuffle=True)


def _shared(given: dict[str, Any], number: int, seed: int = 0) -> Batches:
    from preprocess import SharedLoader

    return SharedLoader(
        pictures(Path(given["folder"], "pictures.h5")),
        BATCH,
        seed=seed,
        readers=given["networks"],
        name=given["name"],
        linger=0.5,
        prepare=lambda images, targets: (targets.clone(),),
    )


def _seeds(given: dict[str, Any], number: int) -> Batches:
    return _shared(given, number, number)


def _tensorsocket(given: dict[str, Any], number: int) -> Batches:
    """The last one is the producer, which begins when all consumers are there."""
    ports, hearts = given["ports"][:2], tuple(given["ports"][2:])
    if number < given["networks"]:
        from tensorsocket import TensorConsumer

        return TensorConsumer(*ports, heart_ports=hearts, batch_size=BATCH)
    from tensorsocket import TensorProducer

    producer = TensorProducer(_loaders(given, 0), *ports, heart_ports=hearts, producer_batch_size=2)
    deadline = time.monotonic() + _JOIN_SECONDS
    while len(producer.hb.consumers) < given["networks"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(producer.hb.consumers)} consumers came within {_JOIN_SECONDS:g} s")
        time.sleep(0.1)
    time.sleep(_SETTLE_SECONDS)
    return producer


def _streaming() -> Any:
    """MosaicML Streaming without its own vision data sets, which are not used and need a torchvision for this torch."""
    sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))
    import streaming

    return streaming


def _mosaic(given: dict[str, Any], number: int) -> Batches:
    base: Any = _streaming().StreamingDataset

    class Pictures(base):
        work = Work(number)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            sample = super().__getitem__(index)
            return self.work(sample["image"]), sample["label"]

    local = Path(given["folder"], f"mds-{number}")
    local.symlink_to(Path(given["folder"], "mds"))
    with open(Path(given["folder"], "lock"), "w") as lock:  # two at once would take one name in shared memory
        fcntl.flock(lock, fcntl.LOCK_EX)
        samples = Pictures(local=str(local), shuffle=True, shuffle_seed=number, batch_size=BATCH)
    return _loader(samples, shuffle=None)


def _webdataset(given: dict[str, Any], number: int) -> Batches:
    import webdataset

    work, shards = Work(number), sorted(map(str, Path(given["folder"], "tars").glob("*.tar")))
    samples = webdataset.WebDataset(shards, shardshuffle=_SHARDS, seed=number)
    shuffled = samples.shuffle(1000, rng=random.Random(number))
    return _loader(shuffled.to_tuple("jpg", "cls").map_tuple(work, int), shuffle=None)


_MAKE: dict[str, Callable[[dict[str, Any], int], Batches]] = {
    "loaders": _loaders,
    "shared": _shared,
    "seeds": _seeds,
    "tensorsocket": _tensorsocket,
    "mosaic": _mosaic,
    "webdataset": _webdataset,
}


def write(folder: Path) -> None:
    """Write the pictures of a folder as MDS."""
    with _streaming().MDSWriter(out=str(folder / "mds"), columns={"image": "bytes", "label": "int"}) as mds:
        for number, path in enumerate(sorted((folder / "pictures").rglob("*.jpg"))):
            mds.write({"image": path.read_bytes(), "label": number})


def _import_for(way: str) -> None:
    """Import what the networks need, so that they share it."""
    if way == "mosaic":
        _streaming()
    elif way in PEERS:
        __import__(way)


def _be_network(way: str, given: dict[str, Any], number: int, asked: int, told: int) -> None:
    """Read an epoch for each byte; tell how many pictures that were."""
    batches: Batches | None = None
    while os.read(asked, 1):
        batches = _MAKE[way](given, number) if batches is None else batches
        images = sum(0 if batch is None else len(batch[0]) for batch in batches)
        os.write(told, images.to_bytes(8, "little"))


def _fork(way: str, given: dict[str, Any], number: int) -> tuple[int, int]:
    asked, ask = os.pipe()
    tell, told = os.pipe()
    if os.fork() == 0:
        os.close(ask)
        os.close(tell)
        try:
            _be_network(way, given, number, asked, told)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(asked)
    os.close(told)
    return ask, tell


def _epoch(networks: list[tuple[int, int]]) -> Iterator[int]:
    for ask, _ in networks:
        os.write(ask, b"e")
    for _, tell in networks:
        answer = os.read(tell, 8)
        if not answer:
            sys.exit("a network ended")
        yield int.from_bytes(answer, "little")


def _take_part(way: str, rest: str) -> None:
    if way == "write":
        return write(Path(rest))
    torch.set_num_threads(1)
    given = json.loads(rest)
    _import_for(way)
    count = given["networks"]
    networks = [_fork(way, given, number) for number in range(count + (way == "tensorsocket"))]
    for _ in sys.stdin:
        images = list(_epoch(networks))[:count]
        print("images", sum(images), min(images), flush=True)
    return None


if __name__ == "__main__":
    _take_part(*sys.argv[1:])
