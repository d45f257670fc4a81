"""Shapes of clusters: as they are written, and what is no shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.comparing.settings import read_cluster, shape_of

KINDS = st.sampled_from(["v100", "p100", "t4"])


@pytest.mark.parametrize(
    ("text", "devices", "kinds"),
    [
        ("16x8", (8,) * 16, ()),
        (" 2 x 3 ", (3, 3), ()),
        ("4,4,2", (4, 4, 2), ()),
        ("2x4,1x2,7", (4, 4, 2, 7), ()),
        ("2x4:V100,1x2:p100", (4, 4, 2), ("v100", "v100", "p100")),
    ],
)
def test_shapes_are_read(text: str, devices: tuple[int, ...], kinds: tuple[str, ...]) -> None:
    assert read_cluster(text) == Cluster(devices, kinds)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), min_size=1, max_size=5), st.booleans(), st.data())
def test_a_shape_that_is_told_is_read_again_as_the_same(
    parts: list[tuple[int, int]], mixed: bool, data: st.DataObject
) -> None:
    devices = tuple(each for nodes, each in parts for _ in range(nodes))
    kinds = tuple(data.draw(KINDS) for _ in devices) if mixed else ()
    cluster = Cluster(devices, kinds)
    assert read_cluster(shape_of(cluster)) == cluster


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("16x0", "has no device"),
        ("0x8", "has no device"),
        ("16x8x2", "is no shape of nodes; write NODESxDEVICES"),
        ("-1x8", "is no shape of nodes"),
        ("", "is no shape of nodes"),
        ("16x8,", "is no shape of nodes"),
        ("8x4:v100,4x4", "4x4 names no kind of device, but others do"),
        ("10000000x8", "at most 1,000,000"),
        ("99999999999x1", "at most 1,000,000"),
        ("1.5x8", "is no shape of nodes"),
    ],
)
def test_what_is_no_shape_is_named(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        read_cluster(text)
    assert str(caught.value).startswith(f"cluster {text}: ")
