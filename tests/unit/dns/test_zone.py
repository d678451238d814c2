"""The answers of CoreDNS, read by dnspython."""

import dns.message
import dns.rcode
import pytest

from kedge.dns.cluster_index import ClusterIndex
from kedge.dns.message import SERVFAIL, A, build_response, parse_query
from kedge.dns.zone import MOST_ALIASES, ClusterZone, ZoneAnswer
from kedge.testing.dns import new_service, new_slice

SOA = "cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. {} 7200 1800 86400 5"
WEB = "web.default.svc.cluster.local."
DB = "db.default.svc.cluster.local."


@pytest.fixture
def index() -> ClusterIndex:
    index = ClusterIndex()
    for name in ("default", "empty"):
        index.put_namespace(name)
    ports = [
        {"name": "http", "port": 80, "protocol": "TCP"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ]
    index.put_service(new_service("web", "10.96.1.1", ports=ports))
    unnamed = [{"port": 80, "protocol": "TCP"}]
    index.put_service(
        new_service("dual", "10.96.1.2", clusterIPs=["10.96.1.2", "fd00::2"], ports=unnamed)
    )
    index.put_service(new_service("db"))
    index.put_slice(
        new_slice(
            "db",
            {"addresses": ["10.244.0.5"], "hostname": "db-0"},
            {"addresses": ["10.244.0.6"], "hostname": "db-1"},
            "10.244.0.7",
            {"addresses": ["10.244.0.8"], "conditions": {"ready": False}},
        )
    )
    index.put_slice(new_slice("db", "fd00::7", name="db-6", addressType="IPv6"))
    index.put_service(new_service("starting"))
    index.put_service(new_service("docs", "", type="ExternalName", externalName="docs.example.com"))
    index.put_service(new_service("alias", "", type="ExternalName", externalName=DB))
    index.put_service(new_service("lost", "", type="ExternalName", externalName="x." + WEB))
    index.put_service(
        new_service("loop", "", type="ExternalName", externalName="loop.default.svc.cluster.local")
    )
    return index


@pytest.fixture
def zone(index: ClusterIndex) -> ClusterZone:
    return ClusterZone(index, "cluster.local", bytes([10, 96, 0, 10]), 1000)


def ask(zone: ClusterZone, name: str, kind: str = "A") -> tuple[dns.message.Message, ZoneAnswer]:
    query = parse_query(dns.message.make_query(name, kind).to_wire())
    assert query is not None
    found = zone.find(query.labels, query.type)
    assert found is not None, "not a name of the zone"
    return dns.message.from_wire(build_response(query, found.answer, 65535)), found


def lines(zone: ClusterZone, name: str, kind: str = "A") -> list[str]:
    """The records of the answer section, without their owners; sorted, as they are rotated."""
    message, found = ask(zone, name, kind)
    assert found.alias is None
    assert dns.rcode.to_text(message.rcode()) == "NOERROR"
    return sorted(str(rdata) for rrset in message.answer for rdata in rrset)


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        (WEB, "A", ["10.96.1.1"]),
        ("WEB.Default.SVC.cluster.LOCAL.", "A", ["10.96.1.1"]),
        (WEB, "AAAA", []),
        (WEB, "TXT", []),
        (WEB, "ANY", []),
        (WEB, "SRV", [f"0 50 53 {WEB}", f"0 50 80 {WEB}"]),
        (f"_http._tcp.{WEB}", "SRV", [f"0 100 80 {WEB}"]),
        (f"_dns._udp.{WEB}", "SRV", [f"0 100 53 {WEB}"]),
        (f"_http._tcp.{WEB}", "A", []),
        (f"_tcp.{WEB}", "A", []),
        ("dual.default.svc.cluster.local", "AAAA", ["fd00::2"]),
        ("dual.default.svc.cluster.local", "SRV", ["0 50 80 dual.default.svc.cluster.local."]),
        (DB, "A", ["10.244.0.5", "10.244.0.6", "10.244.0.7"]),
        (DB, "AAAA", ["fd00::7"]),
        (f"db-0.{DB}", "A", ["10.244.0.5"]),
        (f"db-0.{DB}", "AAAA", []),
        (f"10-244-0-7.{DB}", "A", ["10.244.0.7"]),
        (f"fd00--7.{DB}", "AAAA", ["fd00::7"]),
        (
            f"_http._tcp.{DB}",
            "SRV",
            [
                f"0 25 8080 10-244-0-7.{DB}",
                f"0 25 8080 db-0.{DB}",
                f"0 25 8080 db-1.{DB}",
                f"0 25 8080 fd00--7.{DB}",
            ],
        ),
        ("1-2-3-4.default.pod.cluster.local", "A", ["1.2.3.4"]),
        ("1-2-3-4.default.pod.cluster.local", "AAAA", []),
        ("fd00--1.default.pod.cluster.local", "AAAA", ["fd00::1"]),
        ("1.1.96.10.in-addr.arpa", "PTR", [WEB]),
        ("5.0.244.10.in-addr.arpa", "PTR", [f"db-0.{DB}"]),
        ("7.0.244.10.in-addr.arpa", "PTR", [f"10-244-0-7.{DB}"]),
        ("7.0.244.10.in-addr.arpa", "A", []),
        ("7." + "0." * 29 + "d.f.ip6.arpa", "PTR", [f"fd00--7.{DB}"]),
        ("dns-version.cluster.local", "TXT", ['"1.1.0"']),
        ("ns.dns.cluster.local", "A", ["10.96.0.10"]),
        ("cluster.local", "NS", ["ns.dns.cluster.local."]),
        ("cluster.local", "A", []),
        ("dns.cluster.local", "A", []),
        ("svc.cluster.local", "A", []),
        ("pod.cluster.local", "A", []),
        ("empty.svc.cluster.local", "A", []),
        ("empty.pod.cluster.local", "A", []),
        ("docs.default.svc.cluster.local", "CNAME", ["docs.example.com."]),
        ("alias.default.svc.cluster.local", "CNAME", [DB]),
        ("alias.default.svc.cluster.local", "AAAA", [DB, "fd00::7"]),
    ],
)
def test_names_that_exist(zone: ClusterZone, name: str, kind: str, wanted: list[str]) -> None:
    assert lines(zone, name, kind) == wanted
    message, _ = ask(zone, name, kind)
    shown = [str(rrset) for rrset in message.authority]
    assert shown == ([] if wanted else [SOA.format(zone_serial(zone))])
    assert message.flags & dns.flags.AA


def zone_serial(zone: ClusterZone) -> int:
    message, _ = ask(zone, "cluster.local", "SOA")
    return int(message.answer[0][0].serial)


@pytest.mark.parametrize(
    "name",
    [
        "nope.default.svc.cluster.local",
        "web.nope.svc.cluster.local",
        "nope.svc.cluster.local",
        "nope.pod.cluster.local",
        "1-2-3-4.nope.pod.cluster.local",
        "web.default.pod.cluster.local",
        "x.1-2-3-4.default.pod.cluster.local",
        "nope.cluster.local",
        f"db-9.{DB}",
        f"10-244-0-5.{DB}",
        f"10-244-0-8.{DB}",
        f"10-96-1-1.{WEB}",
        f"_nope._tcp.{WEB}",
        f"_http._udp.{WEB}",
        f"_sctp.{WEB}",
        f"http.tcp.{WEB}",
        f"a._http._tcp.{WEB}",
        "_._tcp.dual.default.svc.cluster.local",
        "starting.default.svc.cluster.local",
        "x.docs.default.svc.cluster.local",
        "lost.default.svc.cluster.local",
    ],
)
def test_names_that_do_not_exist(zone: ClusterZone, name: str) -> None:
    for kind in ("A", "AAAA", "SRV"):
        message, _ = ask(zone, name, kind)
        assert dns.rcode.to_text(message.rcode()) == "NXDOMAIN"
        assert [str(each) for each in message.authority] == [SOA.format(zone_serial(zone))]


@pytest.mark.parametrize(
    "labels",
    [
        (b"example", b"com"),
        (b"local",),
        (),
        (b"xcluster", b"local"),
        (b"4", b"3", b"2", b"1", b"in-addr", b"arpa"),
        (b"x", b"arpa"),
    ],
)
def test_names_of_other_domains(zone: ClusterZone, labels: tuple[bytes, ...]) -> None:
    assert zone.find(labels, A) is None


def test_addresses_come_with_the_targets_of_services(zone: ClusterZone) -> None:
    message, _ = ask(zone, f"_http._tcp.{DB}", "SRV")
    assert sorted(str(each) for each in message.additional) == [
        f"10-244-0-7.{DB} 5 IN A 10.244.0.7",
        f"db-0.{DB} 5 IN A 10.244.0.5",
        f"db-1.{DB} 5 IN A 10.244.0.6",
        f"fd00--7.{DB} 5 IN AAAA fd00::7",
    ]


def test_one_host_name_with_two_addresses_has_one_srv_record(
    zone: ClusterZone, index: ClusterIndex
) -> None:
    endpoints = [{"addresses": [f"10.244.1.{each}"], "hostname": "same"} for each in (1, 2)]
    index.put_service(new_service("twin"))
    index.put_slice(new_slice("twin", *endpoints))
    message, _ = ask(zone, "twin.default.svc.cluster.local", "SRV")
    assert [len(rrset) for rrset in (*message.answer, *message.additional)] == [1, 2]


def test_a_name_of_another_domain_continues_there(zone: ClusterZone) -> None:
    message, found = ask(zone, "docs.default.svc.cluster.local", "A")
    assert found.alias == b"\4docs\7example\3com\0"
    assert [str(each) for each in message.answer] == [
        "docs.default.svc.cluster.local. 5 IN CNAME docs.example.com."
    ]


def test_an_alias_comes_before_the_records_of_its_target(zone: ClusterZone) -> None:
    message, _ = ask(zone, "alias.default.svc.cluster.local", "AAAA")
    assert [dns.rdatatype.to_text(each.rdtype) for each in message.answer] == ["CNAME", "AAAA"]


def test_aliases_that_lead_in_a_circle_end(zone: ClusterZone, index: ClusterIndex) -> None:
    message, _ = ask(zone, "loop.default.svc.cluster.local", "A")
    assert message.rcode() == SERVFAIL
    for number in range(MOST_ALIASES):
        target = f"hop{number + 1}.default.svc.cluster.local" if number < MOST_ALIASES - 2 else WEB
        index.put_service(new_service(f"hop{number}", "", type="ExternalName", externalName=target))
    message, _ = ask(zone, "hop0.default.svc.cluster.local", "A")
    assert str(message.answer[-1][0]) == "10.96.1.1"


def test_addresses_of_a_headless_service_rotate(zone: ClusterZone) -> None:
    firsts = {str(ask(zone, DB)[0].answer[0][0]) for _ in range(100)}
    assert firsts == {"10.244.0.5", "10.244.0.6", "10.244.0.7"}


def test_answers_follow_changes(zone: ClusterZone, index: ClusterIndex) -> None:
    before = zone_serial(zone)
    assert lines(zone, DB, "AAAA") == ["fd00::7"]
    index.put_slice(new_slice("db", "fd00::9", name="db-6", addressType="IPv6"))
    assert lines(zone, DB, "AAAA") == ["fd00::9"]
    assert zone_serial(zone) > before


def test_before_all_objects_are_known_names_of_the_cluster_fail(index: ClusterIndex) -> None:
    zone = ClusterZone(index, "cluster.local", bytes(4), 1, synced=False)
    message, _ = ask(zone, WEB)
    assert message.rcode() == SERVFAIL
    assert zone.find((b"example", b"com"), A) is None


def test_more_addresses_than_a_message_can_hold(zone: ClusterZone, index: ClusterIndex) -> None:
    index.put_service(new_service("huge"))
    for number in range(5):
        addresses = [f"10.{number}.{n >> 8}.{n & 255}" for n in range(1000)]
        index.put_slice(new_slice("huge", *addresses, name=f"huge-{number}"))
    message, _ = ask(zone, "huge.default.svc.cluster.local")
    assert 3500 < len(message.answer[0]) <= 4000
