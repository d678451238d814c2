"""Ingress rules: which backend a host and a path lead to, and which certificate a host has."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from kedge.client.informer import Key
from kedge.gateway.objects import (
    BackendService,
    IngressBackend,
    IngressClassInfo,
    IngressInfo,
    IngressRule,
)
from kedge.gateway.service_hosts import service_host

CONTROLLER: Final = "kedge.dev/gateway"
"""The controller that IngressClasses of the gateway name."""
CLASS: Final = "kedge"
DEFAULT_CLASS: Final = "ingressclass.kubernetes.io/is-default-class"
_LEGACY_CLASS: Final = "kubernetes.io/ingress.class"
_MOST_PATH: Final = 2048
"""Characters of a rule's path. A longer one is ignored: all its beginnings would be compared."""


class IngressRoute(NamedTuple):
    """The destination of requests."""

    namespace: str
    backend: BackendService | None
    """None if the gateway does not support the backend."""


class PathRule(NamedTuple):
    """One path of one host."""

    host: str
    path: str
    """Without a slash at its end, unless it is exact."""
    is_exact: bool
    route: IngressRoute


Age = tuple[str, str, str]
"""Creation time, namespace and name: of several rules for one path the oldest counts."""


# Classes.


def default_class(classes: Iterable[IngressClassInfo]) -> IngressClassInfo | None:
    """Return the default class: of several the newest, then the first by name."""
    marked = [each for each in classes if each.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    marked.sort(key=lambda each: each.metadata.name)
    return max(marked, key=lambda each: each.metadata.creation_timestamp, default=None)


def served_classes(classes: Iterable[IngressClassInfo]) -> frozenset[str]:
    """Return the names of the classes that the gateway serves; with the empty name if one of them
    is the default."""
    every = list(classes)
    names = {each.metadata.name for each in every if each.spec.controller == CONTROLLER}
    default = default_class(every)
    if default is not None and default.metadata.name in names:
        names.add("")
    return frozenset(names)


def is_served(ingress: IngressInfo, names: frozenset[str]) -> bool:
    """Whether the gateway serves an Ingress; `names` are the classes that it serves."""
    legacy = ingress.metadata.annotations.get(_LEGACY_CLASS, "")
    return (ingress.spec.ingress_class_name or legacy) in names


# Rules.


def path_rules(ingress: IngressInfo) -> Iterator[PathRule]:
    """Yield the paths of an Ingress, and its default backend as the path of last resort."""
    for rule in ingress.spec.rules:
        yield from _of_rule(ingress, rule)
    default = ingress.spec.default_backend
    if default is not None:
        hosts = dict.fromkeys(rule.host.lower() for rule in ingress.spec.rules) or [""]
        for host in hosts:
            yield PathRule(host, LAST_RESORT, False, _route(ingress, default))


LAST_RESORT: Final = "\0"
"""In place of a path: matches if no path does. Paths of requests do not hold this character."""


def _of_rule(ingress: IngressInfo, rule: IngressRule) -> Iterator[PathRule]:
    for each in rule.http.paths if rule.http else ():
        path = each.path or "/"
        if len(path) > _MOST_PATH or not path.startswith("/"):
            continue
        is_exact = each.path_type == "Exact"
        route = _route(ingress, each.backend)
        yield PathRule(rule.host.lower(), path if is_exact else path.rstrip("/"), is_exact, route)


def _route(ingress: IngressInfo, backend: IngressBackend) -> IngressRoute:
    return IngressRoute(ingress.metadata.namespace, backend.service)


def tls_hosts(ingress: IngressInfo) -> Iterator[tuple[str, Key]]:
    """Yield the hosts of an Ingress that have a certificate, and the Secret that holds it; the
    first one of a host counts."""
    # The first entry without hosts uses this up, and counts for all hosts. There may be thousands
    # of entries and of rules: they are not multiplied.
    every = (rule.host for rule in ingress.spec.rules)
    for each in ingress.spec.tls:
        if each.secret_name:
            secret = Key(ingress.metadata.namespace, each.secret_name)
            for host in each.hosts or every:
                yield host.lower(), secret


def is_of_another_namespace(host: str, namespace: str) -> bool:
    """Whether a host is that of Services of another namespace: an Ingress cannot take it."""
    named = service_host(host)
    return named is not None and named.namespace != namespace


def host_patterns(name: str) -> tuple[str, ...]:
    """Return the hosts of rules that match a name, the most specific one first."""
    _, dot, parent = name.partition(".")
    return (name, f"*.{parent}", "") if dot and parent else (name, "")


class HostRoutes(msgspec.Struct):
    """The paths of one host."""

    exact: dict[str, tuple[Age, IngressRoute]] = msgspec.field(default_factory=dict)
    prefixes: dict[str, tuple[Age, IngressRoute]] = msgspec.field(default_factory=dict)
    longest: int = 0
    """Length of the longest prefix."""

    def add(self, age: Age, rule: PathRule) -> None:
        paths = self.exact if rule.is_exact else self.prefixes
        if rule.path not in paths or age < paths[rule.path][0]:
            paths[rule.path] = age, rule.route
        if not rule.is_exact:
            self.longest = max(self.longest, len(rule.path))

    def find(self, path: str) -> IngressRoute | None:
        """Return the destination of a path: the longest rule that matches, an exact one first."""
        if path in self.exact:
            return self.exact[path][1]
        for prefix in _prefixes(path, self.longest):
            if prefix in self.prefixes:
                return self.prefixes[prefix][1]
        if LAST_RESORT in self.prefixes:
            return self.prefixes[LAST_RESORT][1]
        return None


def _prefixes(path: str, longest: int) -> Iterator[str]:
    """Yield the beginnings of a path that end with an element, the longest one first."""
    if len(path) > longest:
        cut = path[: longest + 1]
        path = cut[:-1] if cut.endswith("/") else cut.rpartition("/")[0]
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path


class IngressTable:
    """The rules of all Ingresses that the gateway serves."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostRoutes] = {}
        self._secrets: dict[str, tuple[Age, Key]] = {}

    def add(self, ingress: IngressInfo) -> Iterator[None]:
        """Add the rules of an Ingress, one per step: there may be thousands."""
        meta = ingress.metadata
        age = (meta.creation_timestamp, meta.namespace, meta.name)
        for rule in path_rules(ingress):
            yield
            if is_of_another_namespace(rule.host, meta.namespace):
                continue
            self._hosts.setdefault(rule.host, HostRoutes()).add(age, rule)
        for host, secret in tls_hosts(ingress):
            yield
            if is_of_another_namespace(host, meta.namespace):
                continue
            if host not in self._secrets or age < self._secrets[host][0]:
                self._secrets[host] = age, secret

    def become(self, other: "IngressTable") -> None:
        """Take over the rules of another table, in place of the own ones."""
        self._hosts, self._secrets = other._hosts, other._secrets

    def find(self, host: str, path: str) -> IngressRoute | None:
        """Return the destination for a host as rules spell it."""
        routes = self._hosts.get(host)
        return routes.find(path) if routes is not None else None

    def secret(self, name: str) -> Key | None:
        """Return the Secret with the certificate of a host name."""
        for host in host_patterns(name):
            if host in self._secrets:
                return self._secrets[host][1]
        return None
