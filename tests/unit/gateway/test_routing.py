"""From host and path to endpoints."""

from collections import deque
from typing import Any

import msgspec
import pytest

from kedge.client.informer import Cache
from kedge.gateway.endpoints import SliceIndex
from kedge.gateway.ingress_routes import IngressTable
from kedge.gateway.objects import IngressInfo, ServiceInfo, SliceInfo
from kedge.gateway.routing import Routing, routed_path
from kedge.machinery.errors import StatusError


def made(type_: Any, name: str, **content: Any) -> Any:
    meta = {"name": name, "namespace": "n", "labels": {"kubernetes.io/service-name": name}}
    return msgspec.convert({"metadata": meta, **content}, type_)


def ingress(name: str, host: str, backend: dict[str, Any]) -> IngressInfo:
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    found: IngressInfo = made(
        IngressInfo, name, spec={"rules": [{"host": host, "http": {"paths": paths}}]}
    )
    return found


def to(service: str, **port: Any) -> dict[str, Any]:
    return {"service": {"name": service, "port": port}}


@pytest.fixture
def routing() -> Routing:
    services: Cache[ServiceInfo] = Cache()
    slices = SliceIndex()
    for at, name in enumerate(("web", "other")):
        ports = [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]
        services.put(made(ServiceInfo, name, spec={"ports": ports}))
        numbers = [{"name": "http", "port": 8080}, {"name": "https", "port": 8443}]
        endpoints = [{"addresses": [f"10.0.0.{at}"]}]
        slices.put(made(SliceInfo, name, ports=numbers, endpoints=endpoints))
    services.put(made(ServiceInfo, "lonely", spec={"ports": [{"port": 80}]}))
    services.put(made(ServiceInfo, "udp", spec={"ports": [{"port": 53, "protocol": "UDP"}]}))
    services.put(made(ServiceInfo, "away", spec={"type": "ExternalName", "ports": [{"port": 80}]}))
    table = IngressTable()
    for each in (
        ingress("a", "a.com", to("web", number=80)),
        ingress("b", "b.com", to("web", name="https")),
        ingress("c", "c.com", to("none", number=80)),
        ingress("d", "d.com", to("web", number=81)),
        ingress("e", "e.com", {"resource": {"kind": "Bucket"}}),
        ingress("f", "f.com", to("away", number=80)),
        ingress("g", "other.n.localhost", to("web", number=80)),
        ingress("h", "*.n.localhost", to("other", number=80)),
    ):
        deque(table.add(each), 0)
    return Routing(services, slices, table)


@pytest.mark.parametrize(
    ("host", "endpoints", "tls"),
    [
        ("web.n.localhost", [("10.0.0.0", 8080)], False),
        ("https.web.n.localhost", [("10.0.0.0", 8443)], True),
        ("a.com", [("10.0.0.0", 8080)], False),
        ("b.com", [("10.0.0.0", 8443)], True),
        # An Ingress for the very name wins, one for many names does not.
        ("other.n.localhost", [("10.0.0.0", 8080)], False),
        ("missing.n.localhost", [("10.0.0.1", 8080)], False),
    ],
)
def test_a_host_leads_to_endpoints(
    routing: Routing, host: str, endpoints: list[tuple[str, int]], tls: bool
) -> None:
    assert routing.target(host, "/x") == (endpoints, tls, "n")


@pytest.mark.parametrize(
    ("host", "code", "message"),
    [
        ("lonely.n.localhost", 503, 'no endpoints available for service "lonely"'),
        ("udp.n.localhost", 404, 'service "udp" in namespace "n" has no TCP port'),
        ("x.web.n.localhost", 404, 'service "web" in namespace "n" has no port "x"'),
        ("web.m.localhost", 404, 'there is no service "web" in namespace "m"'),
        ("c.com", 503, 'there is no service "none"'),
        ("d.com", 503, 'service "web" does not have the port of the rule'),
        ("e.com", 503, "the gateway serves only backends that are Services"),
        ("f.com", 503, 'service "away" is of type ExternalName'),
        (
            "z.com",
            404,
            'no Ingress has a rule for host "z.com" and this path; the Service NAME of a namespace'
            " is at NAME.NAMESPACE.localhost",
        ),
    ],
)
def test_other_hosts_are_refused_with_the_reason(
    routing: Routing, host: str, code: int, message: str
) -> None:
    with pytest.raises(StatusError) as caught:
        routing.target(host, "/")
    assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.parametrize(
    ("path", "routed"), [("/a/b", "/a/b"), ("/%61/b%20", "/a/b "), ("/a..b/...", "/a..b/...")]
)
def test_rules_see_the_decoded_path(path: str, routed: str) -> None:
    assert routed_path(path) == routed


@pytest.mark.parametrize("path", ["/..", "/a/../b", "/a/%2e%2E/b", "/./a", "/a%2f..%2fb"])
def test_dot_segments_are_refused(path: str) -> None:
    with pytest.raises(StatusError) as caught:
        routed_path(path)
    assert caught.value.code == 400


def test_an_ingress_cannot_take_the_hosts_of_another_namespaces_services(routing: Routing) -> None:
    table = IngressTable()
    hosts = ("web.m.localhost", "http.web.m.localhost", "*.m.localhost", "*.web.m.localhost")
    for number, host in enumerate((*hosts, "web.n.localhost", "x.com")):
        made_here = ingress(f"i{number}", host, to("other", number=80))
        tls = [{"hosts": [host], "secretName": "s"}]
        document = msgspec.to_builtins(made_here)
        document["spec"]["tls"] = tls
        deque(table.add(msgspec.convert(document, IngressInfo)), 0)
    for host in hosts:
        assert table.find(host, "/") is None
        assert table.secret(host.replace("*", "any")) is None
    for host in ("web.n.localhost", "x.com"):
        assert table.find(host, "/") is not None
        assert table.secret(host) is not None
