"""What once escaped from a reader: (target, example)."""

from __future__ import annotations

FOUND: list[tuple[str, bytes]] = [
    ("site", b"\x96"),
    ("site", b"a: !!bool x"),
    ("site", b"[" * 100_000),
    ("site", b"gpus: " + b"9" * 5000),
    ("site", b"scheduler: slurm\ngpus: 0" + b"7" * 6000),
    ("rate table", b"global_batch_size,1" + b"0" * 5000 + b"\n64,10\n"),
    ("rate table", b"global_batch_size,1000000000000\n64,10\n"),
    ("offered jobs", b'{"name": "late"}'),
    ("offered jobs", b'{"name": "late", "arrival": "soon"}'),
    ("offered jobs", b"[" * 100_000),
    ("checkpoint fields", b'{"tree": {"dict": [["job", "x"]]}, "arrays": {}, "format": 2}'),
    ("profile", b'{"rates": {"f": {"1": 1%s}}, "names": {}}' % (b"0" * 400)),
    *[
        (
            "hdf5 index",
            b'{"labels": [0, 1], "crc32": [1, 2], "bytes": [1, 2, 3, 4], "offsets": %s, "attributes": '
            b'{"image_shape": [2, 3], "channels": 3}}' % offsets,
        )
        for offsets in (b"[-1e999, 1, 4]", b"[3, 1, 4]", b"[-1, 1, 4]", b"[[0], [1], [4]]")
    ],
    ("ensemble file", b'{"lengths": "/x", "spec": {}, "folder": "/x"}'),
]
"""Whole examples."""

CHANGED: list[tuple[str, int, bytes, bytes]] = [
    ("hdf5", 1, b"targets", b"\xe2\x80\xa8"),
    ("arrow", 1, b"\xff\xff\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00"),
    ("tar index file", 0, b"PK\x03\x04\x2d\x00\x00\x00\x00\x00", b"PK\x03\x04\x2d\x00\x00\x00\x63\x00"),
    ("tar index file", 0, b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00\x00\x00", b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00\x63\x00"),
    ("checkpoint fields", 0, b'["python", ', b'["other", '),
    ("checkpoint fields", 0, b'["pins", {"dict": [["', b'["pins", {"dict": [[-Infinity, ""], ["'),
    ("checkpoint fields", 0, b'["epoch", ', b'["epoch", -'),
    ("checkpoint fields", 0, b'["used", [true', b'["used", [3'),
    ("journal to report", 0, b'"devices_per_node":[', b'"devices_per_node":[null,'),
    ("journal to report", 0, b'"versions":{', b'"versions":{"\\ud800":"",'),
    ("journal to report", 0, b'"seed":', b'"seed":"model","was":'),
    ("journal as trace", 0, b'"devices":[', b'"devices":[],"were":['),
    ("journal as trace", 0, b'"virtual_workers":', b'"virtual_workers":0,"were":'),
    ("journal to next session", 0, b'"allocation":{', b'"allocation":{"x":3,'),
    ("journal to next session", 0, b'"measured":{', b'"measured":{"x":3,'),
]
"""Of which example of the corpus, what became what, each time that it stands there."""
