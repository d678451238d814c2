"""Ingress rules, as tables: the examples of Kubernetes' documentation, and ours."""

from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.client.informer import Key
from kedge.gateway.ingress_routes import (
    CONTROLLER,
    DEFAULT_CLASS,
    IngressTable,
    default_class,
    host_patterns,
    is_served,
    served_classes,
    tls_hosts,
)
from kedge.gateway.objects import IngressClassInfo, IngressInfo


def ingress(*rules: tuple[str, str, str, str], name: str = "i", **more: Any) -> IngressInfo:
    """An Ingress with rules of host, path, path type and service."""
    spec = more.pop("spec", {})
    given = [
        {
            "host": host,
            "http": {"paths": [{"path": path, "pathType": kind, "backend": backend(service)}]},
        }
        for host, path, kind, service in rules
    ]
    meta = {"name": name, "namespace": "n", **more}
    document = {"metadata": meta, "spec": {"rules": given, **spec}}
    return msgspec.json.decode(msgspec.json.encode(document), type=IngressInfo)


def backend(service: str) -> dict[str, Any]:
    return {"service": {"name": service, "port": {"number": 80}}}


def found(table: IngressTable, host: str, path: str) -> str:
    """The service of the first matching host."""
    for pattern in host_patterns(host):
        route = table.find(pattern, path)
        if route is not None:
            return route.backend.name if route.backend else "unsupported"
    return ""


def table_of(*ingresses: IngressInfo) -> IngressTable:
    table = IngressTable()
    for each in ingresses:
        deque(table.add(each), 0)
    return table


@pytest.mark.parametrize(
    ("kind", "rule", "path", "matches"),
    [
        ("Prefix", "/", "/any/path", True),
        ("Exact", "/foo", "/foo", True),
        ("Exact", "/foo", "/bar", False),
        ("Exact", "/foo", "/foo/", False),
        ("Exact", "/foo/", "/foo", False),
        ("Exact", "/Foo", "/foo", False),
        ("Prefix", "/foo", "/foo", True),
        ("Prefix", "/foo", "/foo/", True),
        ("Prefix", "/foo/", "/foo", True),
        ("Prefix", "/foo/", "/foo/", True),
        ("Prefix", "/aaa/bb", "/aaa/bbb", False),
        ("Prefix", "/aaa/bbb", "/aaa/bbb", True),
        ("Prefix", "/aaa/bbb/", "/aaa/bbb", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/ccc", True),
        ("Prefix", "/aaa/bbb", "/aaa/bbbxyz", False),
        ("Prefix", "/Foo", "/foo", False),
        ("ImplementationSpecific", "/foo", "/foo/bar", True),
        ("ImplementationSpecific", "", "/bar", True),
        ("Prefix", "/" + "x" * 3000, "/" + "x" * 3000, False),
    ],
)
def test_a_path_matches_by_its_type(kind: str, rule: str, path: str, matches: bool) -> None:
    assert (found(table_of(ingress(("", rule, kind, "s"))), "h", path) == "s") is matches


@pytest.mark.parametrize(
    ("rule", "host", "matches"),
    [
        ("foo.com", "foo.com", True),
        ("Foo.com", "foo.com", True),
        ("*.foo.com", "bar.foo.com", True),
        ("*.foo.com", "baz.bar.foo.com", False),
        ("*.foo.com", "foo.com", False),
        ("", "anything", True),
    ],
)
def test_a_host_matches_exactly_or_with_one_more_label(rule: str, host: str, matches: bool) -> None:
    assert bool(found(table_of(ingress((rule, "/", "Prefix", "s"))), host, "/")) is matches


PATHS = table_of(
    ingress(
        ("a.com", "/", "Prefix", "root"),
        ("a.com", "/x", "Prefix", "prefix"),
        ("a.com", "/x", "Exact", "exact"),
        ("a.com", "/x/y/z", "Prefix", "long"),
        ("*.com", "/", "Prefix", "wild"),
        ("*.com", "/x/y/z/w", "Exact", "wild-long"),
        ("", "/everywhere", "Prefix", "all"),
    )
)


@pytest.mark.parametrize(
    ("host", "path", "service"),
    [
        ("a.com", "/", "root"),
        ("a.com", "/y", "root"),
        ("a.com", "/x", "exact"),
        ("a.com", "/x/", "prefix"),
        ("a.com", "/x/y", "prefix"),
        ("a.com", "/x/y/z/w/v", "long"),
        ("a.com", "/everywhere", "root"),
        ("b.com", "/x", "wild"),
        ("b.org", "/everywhere/x", "all"),
        ("b.org", "/x", ""),
    ],
)
def test_the_most_specific_rule_counts(host: str, path: str, service: str) -> None:
    assert found(PATHS, host, path) == service


def test_of_two_rules_for_one_path_the_older_counts() -> None:
    old = ingress(("a.com", "/", "Prefix", "old"), creationTimestamp="2026-01-01T00:00:00Z")
    new = ingress(("a.com", "/", "Prefix", "new"), creationTimestamp="2026-01-02T00:00:00Z")
    assert found(table_of(new, old), "a.com", "/") == "old"
    assert found(table_of(old, new), "a.com", "/") == "old"


def test_a_default_backend_gets_the_rest_of_its_hosts() -> None:
    rest = {"defaultBackend": backend("rest")}
    table = table_of(ingress(("a.com", "/x", "Prefix", "x"), spec=rest))
    assert [found(table, "a.com", path) for path in ("/x", "/", "/y/z")] == ["x", "rest", "rest"]
    assert found(table, "b.com", "/") == ""
    assert found(table_of(ingress(spec=rest)), "b.com", "/") == "rest"


def test_other_backends_than_services_are_known_to_be_unsupported() -> None:
    resource = {"resource": {"kind": "Bucket", "name": "b"}}
    assert found(table_of(ingress(spec={"defaultBackend": resource})), "h", "/") == "unsupported"


@given(st.text(st.sampled_from("/ab"), max_size=30), st.lists(st.text(st.sampled_from("/ab"))))
def test_the_table_agrees_with_the_definition(path: str, rules: list[str]) -> None:
    path, rules = f"/{path}", [f"/{rule}" for rule in rules]
    table = table_of(ingress(*(("h", rule, "Prefix", rule.rstrip("/") or "/") for rule in rules)))

    def fits(rule: str) -> bool:
        bare = rule.rstrip("/")
        return path == bare or path.startswith(f"{bare}/")

    longest = max((rule.rstrip("/") for rule in rules if fits(rule)), key=len, default=None)
    expected = "" if longest is None else longest or "/"
    assert found(table, "h", path) == expected


def test_certificates_are_found_by_host() -> None:
    tls = [
        {"hosts": ["a.com", "*.b.com"], "secretName": "one"},
        {"secretName": "two"},
        {"hosts": ["c.com"]},
    ]
    table = table_of(ingress(("d.com", "/", "Prefix", "s"), spec={"tls": tls}))
    one, two = Key("n", "one"), Key("n", "two")
    names = ("a.com", "x.b.com", "d.com", "c.com", "b.com")
    assert [table.secret(name) for name in names] == [one, one, two, None, None]


def ingress_class(
    name: str, default: str = "", controller: str = CONTROLLER, time: str = "1"
) -> Any:
    meta = {"name": name, "annotations": {DEFAULT_CLASS: default}, "creationTimestamp": time}
    document = {"metadata": meta, "spec": {"controller": controller}}
    return msgspec.json.decode(msgspec.json.encode(document), type=IngressClassInfo)


def test_of_several_default_classes_the_newest_counts_then_the_first_by_name() -> None:
    classes = [
        ingress_class("c", "true", time="2"),
        ingress_class("b", "true", time="2"),
        ingress_class("a", "true", time="1"),
        ingress_class("d", "false", time="3"),
    ]
    chosen = default_class(classes)
    assert chosen is not None
    assert chosen.metadata.name == "b"
    assert default_class([]) is None


@pytest.mark.parametrize(
    ("class_name", "annotation", "is_default", "served"),
    [
        ("kedge", "", False, True),
        ("own", "", False, True),
        ("nginx", "", True, False),
        ("none", "", True, False),
        ("", "", True, True),
        ("", "", False, False),
        ("", "kedge", False, True),
        ("", "nginx", True, False),
        ("nginx", "kedge", True, False),
    ],
)
def test_ingresses_of_our_classes_are_served(
    class_name: str, annotation: str, is_default: bool, served: bool
) -> None:
    classes = [
        ingress_class("kedge", "true" if is_default else ""),
        ingress_class("own"),
        ingress_class("nginx", controller="k8s.io/ingress-nginx"),
    ]
    annotations = {"kubernetes.io/ingress.class": annotation} if annotation else {}
    made = ingress(spec={"ingressClassName": class_name}, annotations=annotations)
    assert is_served(made, served_classes(classes)) is served


def test_another_default_class_takes_ingresses_without_one() -> None:
    classes = [
        ingress_class("kedge", "true", time="1"),
        ingress_class("nginx", "true", "k8s.io/ingress-nginx", time="2"),
    ]
    assert served_classes(classes) == {"kedge"}


def test_entries_and_rules_are_not_multiplied() -> None:
    rules = [(f"h{i}.com", "/", "Prefix", "s") for i in range(1_000)]
    tls = [{"secretName": f"s{i}"} for i in range(1_000)]
    made = ingress(*rules, spec={"tls": tls})
    assert [*tls_hosts(made)] == [(host, Key("n", "s0")) for host, *_ in rules]
    assert len([*IngressTable().add(made)]) == 2_000, "one step for each path and host"
