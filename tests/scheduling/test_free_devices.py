"""Free devices are what a plain set of them would be, and are taken where they fit best."""

from hypothesis import given
from hypothesis import strategies as st

from fleet.scheduling.model.cluster import Cluster, FreeDevices
from tests.scheduling.support.strategies import clusters


def nodes_of(cluster: Cluster, devices: tuple[int, ...]) -> int:
    return len({cluster.node_of(device) for device in devices})


@given(st.data(), clusters)
def test_it_is_a_set_of_devices(data: st.DataObject, cluster: Cluster) -> None:
    some = st.sets(st.sampled_from(range(cluster.size)))
    free = data.draw(some)
    books, plain = FreeDevices(cluster, free), set(free)
    for _ in range(5):
        devices = data.draw(some)
        if data.draw(st.booleans()):
            books.give(devices)
            plain |= devices
        else:
            books.remove(devices)
            plain -= devices
        assert books.devices() == sorted(plain) and len(books) == len(plain)
        assert all((device in books) == (device in plain) for device in range(cluster.size))
        on = [len(plain & set(cluster.devices_of(node))) for node in range(cluster.nodes)]
        assert [books.on(node) for node in range(cluster.nodes)] == on and books.largest() == max(on)


@given(st.data(), clusters)
def test_a_job_spans_no_node_too_many(data: st.DataObject, cluster: Cluster) -> None:
    free = data.draw(st.sets(st.sampled_from(range(cluster.size)), min_size=1))
    count = data.draw(st.integers(1, len(free)))
    books = FreeDevices(cluster, free)
    copy = books.copy()
    taken = copy.take(count)
    assert taken is not None and len(set(taken)) == count and set(taken) <= free and list(taken) == sorted(taken)
    assert copy.devices() == sorted(free - set(taken)) and books.devices() == sorted(free)
    on = sorted((books.on(node) for node in range(cluster.nodes)), reverse=True)
    assert nodes_of(cluster, taken) == next(n for n in range(1, len(on) + 1) if sum(on[:n]) >= count)
    if nodes_of(cluster, taken) == 1:
        assert books.on(cluster.node_of(taken[0])) == min(number for number in on if number >= count)


@given(clusters)
def test_too_many_are_refused_and_nothing_is_taken(cluster: Cluster) -> None:
    books = FreeDevices(cluster)
    assert books.take(cluster.size + 1) is None
    assert len(books) == cluster.size


def test_kinds_are_kept_apart() -> None:
    cluster = Cluster((2, 4, 2), ("v100", "t4", "v100"))
    books = FreeDevices(cluster)
    assert (books.of_kind("v100"), books.of_kind("t4"), books.of_kind("a100")) == (4, 4, 0)
    assert books.take(3, "v100") == (0, 1, 6)
    assert books.take(2, "v100") is None
    assert (books.largest("v100"), books.largest("t4"), books.largest()) == (1, 4, 4)
    assert books.take(4) == (2, 3, 4, 5)
    assert cluster.counts() == {"v100": 4, "t4": 4} and cluster.kind_of(6) == "v100"


def test_free_devices_as_bits() -> None:
    free = FreeDevices(Cluster((4, 2)))
    free.remove((1,))
    assert free.bits(4) == 0b11_1101 and free.bits(8) == 0b11_0000_1101
    free.remove((3, 4, 5))
    assert free.bits(4) == 0b0101 and free.devices() == [0, 2]
    free.give((4, 1))
    assert free.devices() == [0, 1, 2, 4]
