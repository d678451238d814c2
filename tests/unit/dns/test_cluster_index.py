import pytest

from kedge.dns.cluster_index import (
    ClusterIndex,
    EndpointRecord,
    NamedPort,
    ServiceEntry,
    ServiceSpecEntry,
    service_entry,
    slice_entry,
)
from kedge.dns.message import DnsAnswer
from kedge.testing.dns import new_service, new_slice

WEB = (b"web", b"default")


def address(last: int) -> bytes:
    return bytes([10, 0, 0, last])


@pytest.fixture
def index() -> ClusterIndex:
    return ClusterIndex()


def found(index: ClusterIndex) -> ServiceEntry:
    entry = index.service(WEB)
    assert entry is not None
    return entry


def test_the_published_part_of_a_service() -> None:
    http = (NamedPort(b"http", b"tcp", 80),)
    assert service_entry(new_service("web", "10.0.0.1")) == ServiceSpecEntry(
        (address(1),), ports=http
    )
    assert service_entry(new_service("web")) == ServiceSpecEntry((), http, is_headless=True)
    alias = new_service("web", "", type="ExternalName", externalName="Example.com")
    assert service_entry(alias) == ServiceSpecEntry(target=b"\7example\3com\0")
    both = new_service("web", "10.0.0.1", clusterIPs=["10.0.0.1", "fd00::1"])
    assert service_entry(both).addresses == (address(1), bytes([0xFD]) + bytes(14) + b"\1")


def test_endpoints_have_host_names_or_dashed_addresses() -> None:
    entry = slice_entry(
        new_slice(
            "web",
            "10.0.0.5",
            {"addresses": ["10.0.0.6"], "hostname": "a"},
            {"addresses": ["10.0.0.7", "10.0.0.8"], "conditions": {"ready": False}},
            {"addresses": ["nonsense"]},
        ),
        "web",
    )
    assert entry.endpoints == (
        EndpointRecord(b"10-0-0-5", address(5), True),
        EndpointRecord(b"a", address(6), True),
        EndpointRecord(b"10-0-0-7", address(7), False),
        EndpointRecord(b"10-0-0-8", address(8), False),
    )
    assert entry.ports == (NamedPort(b"http", b"tcp", 8080),)


def test_slices_and_services_arrive_in_any_order(index: ClusterIndex) -> None:
    index.put_slice(new_slice("web", "10.0.0.5"))
    assert index.service(WEB) is None
    index.put_service(new_service("web"))
    assert list(found(index).published.addresses) == [address(5)]
    index.remove_service("default", "web")
    assert index.service(WEB) is None
    index.put_service(new_service("web"))
    assert list(found(index).published.addresses) == [address(5)]


def test_slices_of_one_service_are_joined(index: ClusterIndex) -> None:
    index.put_service(new_service("web"))
    index.put_slice(new_slice("web", "10.0.0.5", "10.0.0.6", name="one"))
    index.put_slice(new_slice("web", "10.0.0.6", "10.0.0.7", name="two"))
    assert list(found(index).published.addresses) == [address(5), address(6), address(7)]
    index.put_slice(new_slice("web", "10.0.0.8", name="one"))
    assert set(found(index).published.addresses) == {address(6), address(7), address(8)}
    index.remove_slice("default", "two")
    assert list(found(index).published.addresses) == [address(8)]


def test_a_slice_may_move_to_another_service(index: ClusterIndex) -> None:
    index.put_service(new_service("web"))
    index.put_slice(new_slice("web", "10.0.0.5", name="s"))
    index.put_slice(new_slice("other", "10.0.0.5", name="s"))
    assert not found(index).published.addresses
    assert list(index.endpoints_at(address(5))) == []
    index.put_service(new_service("other"))
    [(entry, endpoint)] = index.endpoints_at(address(5))
    assert (entry.path, endpoint.name) == ((b"other", b"default"), b"10-0-0-5")


@pytest.mark.parametrize("change", ["no label", "FQDN"])
def test_slices_that_have_no_names(index: ClusterIndex, change: str) -> None:
    index.put_service(new_service("web"))
    index.put_slice(new_slice("web", "10.0.0.5"))
    rest = (
        {"addressType": "FQDN"}
        if change == "FQDN"
        else {"metadata": {"name": "web-1", "namespace": "default"}}
    )
    index.put_slice(new_slice("web", "10.0.0.5", **rest))
    assert not found(index).published.addresses


def test_addresses_that_are_not_ready(index: ClusterIndex) -> None:
    endpoint = {"addresses": ["10.0.0.5"], "conditions": {"ready": False}}
    index.put_slice(new_slice("web", endpoint))
    index.put_service(new_service("web"))
    assert not found(index).published.addresses
    assert not found(index).published.ports
    index.put_service(new_service("web", publishNotReadyAddresses=True))
    assert list(found(index).published.addresses) == [address(5)]


def test_cluster_ips_follow_their_services(index: ClusterIndex) -> None:
    index.put_service(new_service("web", "10.0.0.1"))
    assert index.service_at(address(1)) is found(index)
    index.put_service(new_service("web", "10.0.0.2"))
    assert index.service_at(address(1)) is None
    # The address goes to another Service before the end of the first is known.
    index.put_service(new_service("next", "10.0.0.2"))
    index.remove_service("default", "web")
    entry = index.service_at(address(2))
    assert entry is not None
    assert entry.path == (b"next", b"default")


def test_a_change_drops_the_answers_of_its_own_service_only(index: ClusterIndex) -> None:
    for name in ("web", "other"):
        index.put_service(new_service(name))
        entry = index.service((name.encode(), b"default"))
        assert entry is not None
        entry.answers[(), 1] = DnsAnswer()
    before = index.changes
    index.put_slice(new_slice("web", "10.0.0.5"))
    other = index.service((b"other", b"default"))
    assert other is not None
    assert other.answers
    assert not found(index).answers
    assert index.changes > before


def test_nothing_is_left_of_what_went(index: ClusterIndex) -> None:
    index.put_service(new_service("web", "10.0.0.1"))
    index.put_slice(new_slice("web", "10.0.0.5"))
    index.put_namespace("default")
    index.remove_service("default", "web")
    index.remove_slice("default", "web-1")
    index.remove_slice("default", "web-1")
    index.remove_namespace("default")
    kept = {name: value for name, value in vars(index).items() if value and name != "changes"}
    assert kept == {}


def test_namespaces(index: ClusterIndex) -> None:
    index.put_namespace("a")
    assert index.has_namespace(b"a")
    assert not index.has_namespace(b"b")
