"""Hostile requests: valid ones with random mutations, repeatable by seed."""

import json
import random
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from kedge.testing.samples import SAMPLES

_WORDS: Final = (
    *("", "a", "x", "metadata", "spec", "status", "name", "labels", "containers", "items", "*"),
    *("kind", "apiVersion", "v1", "Pod", "env", "template", "selector", "$patch", "delete"),
    *("merge", "replace", "$retainKeys", "$setElementOrder/containers", "f:a", "fieldsV1"),
    *("$deleteFromPrimitiveList/a", "finalizers", "ownerReferences", "managedFields", "uid"),
    *("data", "rules", "ports", "replicas", "100m", "-1", "1e9", "2030-01-01T00:00:00Z", "10s"),
    *("generateName", "matchLabels", "deletionTimestamp", "9" * 30, "é", "\x00", "../..", "a/b"),
    *("1e1000000000", "0.0000000000000001", "-0", "NaN", "100%", "999999999999%", "1Ki", "1e-30"),
    *("\ud800", "\r\nX: y", "\x1b[31m", "${A}", "$(A)", "{{.}}", "(a+)+$", "[", "a{1,99999}"),
    *("0000-00-00T00:00:00Z", "9999-12-31T23:59:60Z", "* * 30 2 *", "@every 1ns"),
    *("1-2147483647", "resourceVersion", "%s", "a" * 300, "é" * 5_000),
)
_NUMBERS: Final = (
    *(0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40),
    *(0.5, -0.0, 1e308, 1e-320, 3.9999999999999999),
)
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_TYPES: Final = (
    *("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain"),
    *("application/cbor", "application/json; charset=latin-1", "/", "", "a" * 500),
)
_ACCEPTS: Final = (
    *("*/*", "application/json", "application/yaml"),
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v9;g=none,application/json",
)
_ODD_ACCEPTS: Final = ("text/html", ";q=;;,,", "é", "application/vnd.kubernetes.protobuf")
_PARAMETERS: Final = (
    *("watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "pretty", "force"),
    *("labelSelector", "fieldSelector", "timeoutSeconds", "dryRun", "fieldManager", "timeout"),
    *("fieldValidation", "propagationPolicy", "gracePeriodSeconds", "allowWatchBookmarks"),
    *("sendInitialEvents", "includeObject", "orphanDependents", "container", "tailLines", "path"),
)
_VALUES: Final = (
    *("true", "false", "1", "All", "Exact", "NotOlderThan", "Strict", "Warn", "Ignore", "-1"),
    *("metadata.name=x", "a in (b,c)", "a=b,!c", "Orphan", "Object", "None", "eyJydiI6MX0", "a>1"),
    *("eyJydiI6MSwic3RhcnQiOiJhIn0", "a=b=c", "a in (", "spec.nodeName!=a", "x" * 2_000),
    *("a in (" + "b," * 500 + "c)", "!" * 100, "a,a," * 200, "9" * 40, "metadata.name=\\", "\x00"),
)
_SUBRESOURCES: Final = (
    *("status", "scale", "binding", "eviction", "log", "exec", "attach", "portforward", "proxy"),
    *("token", "approval", "finalize", "resize", "ephemeralcontainers", "nope", "..", "%2e%2e"),
)
_METHODS: Final = ("HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "X" * 50, "PROPFIND")
_PATHS: Final = (
    *("/", "//", "/api", "/apis", "/api/v1", "/version", "/metrics", "/openapi/v2", "/openapi/v3"),
    *("/apis/apps/v1", "/healthz", "/livez?verbose", "/readyz/nope", "/.well-known/x", "/%00"),
    *("/api/v1/namespaces/%2e%2e/pods", "/api/v1/namespaces/a%2fb/pods", "/apis/" + "a/" * 200),
    *("/api/v1/namespaces/default/pods/x/proxy/http:", "/logs/../../etc/passwd", "/?" + "a&" * 500),
    "/apis/metrics.k8s.io/v1beta1/pods?labelSelector=a>b",
)
_HEADERS: Final = (
    ("Impersonate-User", "x"),
    ("Impersonate-Group", "system:masters"),
    ("Impersonate-Extra-" + "a" * 200, "x"),
    ("Authorization", "Bearer x.y.z"),
    ("Authorization", "Basic !!!"),
    ("Authorization", "Bearer " + "e30." * 400),
    ("If-None-Match", '"x"'),
    ("Accept-Encoding", "gzip;q=0, deflate, *"),
    ("Expect", "100-continue"),
    ("Connection", "upgrade"),
    ("Upgrade", "websocket"),
    ("Range", "bytes=0-"),
    ("User-Agent", "x" * 4_000),
)


class HostileRequest(NamedTuple):
    """One request; `target` is the path with its query."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes


def requests(seed: int) -> Iterator[HostileRequest]:
    """Yield requests without end, the same ones for the same seed."""
    dice = random.Random(seed)
    while True:
        yield _Maker(dice).request()


class _Maker:
    """Makes requests from one random generator."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def request(self) -> HostileRequest:
        make = self._dice.choices(
            (self._create, self._replace, self._patch, self._read, self._delete, self._odd),
            (30, 15, 25, 15, 8, 7),
        )[0]
        method, target, type_, body = make()
        accepts = _ODD_ACCEPTS if self._happens(0.03) else _ACCEPTS
        headers = [("Accept", self._dice.choice(accepts))]
        if type_ is not None:
            headers.append(("Content-Type", type_))
        if self._happens(0.08):
            headers.append(self._dice.choice(_HEADERS))
        return HostileRequest(method, target, headers, body)

    def _happens(self, chance: float) -> bool:
        return self._dice.random() < chance

    def _create(self) -> tuple[str, str, str | None, bytes]:
        sample = self._sample()
        document = sample.document
        if sample.name == "x" and self._happens(0.7):
            document["metadata"]["name"] = f"x-{self._dice.getrandbits(9)}"
        type_, body = self._encoded(self._spoiled(document))
        return "POST", sample.path + self._query(), type_, body

    def _replace(self) -> tuple[str, str, str | None, bytes]:
        sample = self._sample()
        type_, body = self._encoded(self._spoiled(sample.document))
        return "PUT", self._place(sample) + self._query(), type_, body

    def _patch(self) -> tuple[str, str, str | None, bytes]:
        sample, type_ = self._sample(), self._dice.choice(_PATCHES)
        if type_ == _PATCHES[0]:
            content: Any = [self._operation() for _ in range(self._dice.randrange(5))]
        else:
            content = self._spoiled(sample.document)
        return "PATCH", self._place(sample) + self._query(), type_, self._text(content)

    def _read(self) -> tuple[str, str, str | None, bytes]:
        sample = self._sample()
        path = sample.path if self._happens(0.5) else self._place(sample)
        return "GET", path + self._query(), None, b""

    def _delete(self) -> tuple[str, str, str | None, bytes]:
        sample = self._sample()
        path = sample.path if self._happens(0.3) else self._place(sample)
        options = self._text(self._value(3)) if self._happens(0.3) else b""
        return "DELETE", path + self._query(), "application/json" if options else None, options

    def _odd(self) -> tuple[str, str, str | None, bytes]:
        method = self._dice.choice((*_METHODS, "GET", "GET", "POST"))
        return method, self._dice.choice(_PATHS), self._dice.choice(_TYPES), self._noise()

    def _sample(self) -> Any:
        return self._dice.choice(tuple(SAMPLES.values()))

    def _place(self, sample: Any) -> str:
        name = sample.name if self._happens(0.8) else quote(self._word(), errors="replace")
        below = f"/{self._dice.choice(_SUBRESOURCES)}" if self._happens(0.25) else ""
        return f"{sample.path}/{name}{below}"

    def _query(self) -> str:
        # Watches have a timeout, and half of all writes are dry runs.
        parts = ["timeoutSeconds=1"]
        if self._happens(0.5):
            parts.append("dryRun=All")
        for _ in range(self._dice.choice((0, 0, 1, 1, 3))):
            value = self._dice.choice(_VALUES) if self._happens(0.7) else self._word()
            parts.append(f"{self._dice.choice(_PARAMETERS)}={quote(value, errors='replace')}")
        self._dice.shuffle(parts)
        return "?" + "&".join(parts)

    def _word(self) -> str:
        return self._dice.choice(_WORDS)

    def _value(self, depth: int) -> Any:
        sort = self._dice.randrange(8 if depth else 5)
        if sort < 2:
            return self._word()
        if sort == 2:
            return self._dice.choice(_NUMBERS)
        if sort == 3:
            return self._dice.choice((None, True, False))
        if sort == 4:
            return self._dice.choice(([], {}, [None], {"": None}))
        size = self._dice.choice((1, 2, 3, 3, 60))
        below = depth - 1 if size < 60 else 0
        if sort == 5:
            return [self._value(below) for _ in range(size)]
        if self._happens(0.05):
            return self._tower()
        return {f"{self._word()}{i or ''}": self._value(below) for i in range(size)}

    def _tower(self) -> Any:
        """A value that is nested far deeper than any object."""
        tower: Any = self._word()
        for _ in range(self._dice.choice((20, 90, 400))):
            tower = {"a": tower} if self._happens(0.5) else [tower]
        return tower

    def _spoiled(self, document: dict[str, Any]) -> Any:
        """The document with a few of its values replaced, removed, repeated or renamed."""
        copy = json.loads(json.dumps(document))
        for _ in range(self._dice.choice((0, 1, 1, 2, 4))):
            parents = list(_containers(copy))
            parent = self._dice.choice(parents)
            keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
            if not keys or self._happens(0.3):
                self._add(parent)
            elif self._happens(0.2):
                del parent[self._dice.choice(keys)]
            else:
                parent[self._dice.choice(keys)] = self._value(3)
        return copy if self._happens(0.97) else self._value(4)

    def _add(self, parent: Any) -> None:
        if isinstance(parent, dict):
            parent[self._word()] = self._value(3)
        elif parent and self._happens(0.5):
            parent.extend(parent[-1:] * self._dice.choice((1, 2, 300)))
        else:
            parent.append(self._value(3))

    def _operation(self) -> Any:
        if self._happens(0.1):
            return self._value(2)
        names = ("add", "remove", "replace", "move", "copy", "test", "x")
        pointer, source = ("".join(f"/{self._word()}" for _ in range(4)) for _ in range(2))
        return {
            "op": self._dice.choice(names),
            "path": self._dice.choice(("/metadata/labels/a", "/spec", "", "/-", pointer)),
            "from": self._dice.choice(("/metadata/labels", "/spec", "", source)),
            "value": self._value(3),
        }

    def _encoded(self, content: Any) -> tuple[str, bytes]:
        type_ = "application/json" if self._happens(0.8) else self._dice.choice(_TYPES)
        if type_ == "application/vnd.kubernetes.protobuf":
            return type_, self._protobuf()
        return type_, self._text(content)

    def _text(self, content: Any) -> bytes:
        text = json.dumps(content).encode("utf-8", "surrogatepass")
        if not self._happens(0.1) or not text:
            return text
        at = self._dice.randrange(len(text))
        damage = (b"", b"\x00", b"\xff", b"[" * 2_000, b'"a":1,', b"1e999", b"&a *a", b"\n- ", b"}")
        return text[:at] + self._dice.choice(damage) + text[at + self._dice.randrange(3) :]

    def _protobuf(self) -> bytes:
        """Return a Protobuf envelope with invalid field numbers, types and lengths."""
        kind = self._dice.choice(tuple(SAMPLES))
        type_ = _field(1, b"v1") + _field(2, kind.encode())
        inner = b"".join(
            _field(self._dice.choice((1, 2, 3, 50029)), self._noise()) for _ in range(3)
        )
        for _ in range(self._dice.choice((0, 0, 3, 200))):
            inner = _field(self._dice.choice((1, 2)), inner)
        return b"k8s\x00" + _field(1, type_) + _field(2, inner) + self._noise()[:3]

    def _noise(self) -> bytes:
        return self._dice.randbytes(self._dice.choice((0, 1, 8, 64, 1_000)))


def _containers(value: Any) -> Iterator[Any]:
    """Yield every mapping and list of a document, the whole first."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += struct.pack("B", value & 127 | 128)
        value >>= 7
    return out + struct.pack("B", value)
