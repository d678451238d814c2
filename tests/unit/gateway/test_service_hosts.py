"""Host names of Services, as tables."""

import pytest

from kedge.gateway.objects import BackendPort, ServicePortInfo
from kedge.gateway.service_hosts import backend_port, host_name, port_of, service_host, speaks_tls


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("web.default.localhost:8080", "web.default.localhost"),
        ("WEB.Default.localhost.", "web.default.localhost"),
        ("[::1]:80", "[::1]"),
        ("", ""),
    ],
)
def test_a_host_header_is_a_name(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("web.shop.localhost", ("shop", "web", "")),
        ("metrics.web.shop.localhost", ("shop", "web", "metrics")),
        ("8080.web.shop.localhost", ("shop", "web", "8080")),
        ("web.localhost", None),
        ("localhost", None),
        ("a.b.c.d.localhost", None),
        ("web.shop.example.com", None),
        ("", None),
    ],
)
def test_names_below_localhost_are_services(
    name: str, service: tuple[str, str, str] | None
) -> None:
    found = service_host(name)
    assert (found if found is None else tuple(found)) == service


def ports(*texts: str) -> list[ServicePortInfo]:
    """Ports from `NUMBER[/NAME[/APP_PROTOCOL]]`."""
    found = []
    for text in texts:
        number, name, protocol, *_ = [*text.split("/"), "", ""]
        found.append(ServicePortInfo(port=int(number), name=name, app_protocol=protocol))
    return found


@pytest.mark.parametrize(
    ("offered", "asked", "number"),
    [
        (["80"], "", 80),
        (["9090/metrics", "80/http"], "", 80),
        (["9090/metrics", "8080/api"], "", 8080),
        (["443/https", "9000/x/http"], "", 9000),
        (["9000/x", "443/https"], "", 443),
        (["9000/x", "9001/y"], "", 9000),
        (["80/http", "9090/metrics"], "metrics", 9090),
        (["80/http", "9090/metrics"], "9090", 9090),
        (["80/http"], "none", None),
        ([], "", None),
    ],
)
def test_the_port_that_speaks_http_is_chosen(
    offered: list[str], asked: str, number: int | None
) -> None:
    found = port_of(ports(*offered), asked)
    assert (found.port if found else None) == number


def test_ports_of_other_protocols_are_not_chosen() -> None:
    udp = [ServicePortInfo(port=80, name="http", protocol="UDP")]
    assert port_of(udp, "") is None
    assert backend_port(udp, BackendPort(number=80)) is None


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        (BackendPort(number=80), 80),
        (BackendPort(name="b"), 81),
        (BackendPort(number=82), None),
        (BackendPort(name="c"), None),
    ],
)
def test_an_ingress_names_a_port_by_number_or_name(wanted: BackendPort, number: int | None) -> None:
    found = backend_port(ports("80/a", "81/b"), wanted)
    assert (found.port if found else None) == number


@pytest.mark.parametrize(
    ("port", "tls"),
    [
        ("443", True),
        ("8443/https", True),
        ("8443/https-admin", True),
        ("1/x/HTTPS", True),
        ("443/x/http", False),
        ("80/http", False),
    ],
)
def test_ports_with_tls_are_known_by_protocol_name_or_number(port: str, tls: bool) -> None:
    assert speaks_tls(ports(port)[0]) is tls
