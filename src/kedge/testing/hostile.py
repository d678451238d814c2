"""Hostile requests: valid ones with random mutations, repeatable by seed."""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from kedge.machinery.protobuf_wire import bytes_field
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
_ENDLESS: Final = ("0", "-0")
"""Timeouts of a watch that lasts as long as the server chooses: half an hour and more."""
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


_REPEATED_BYTES: Final = 4 << 20
"""More than a body may have."""
TENANT: Final = "tenant"
"""A user that some of the requests impersonate. The test gives it a role."""

_Large = tuple[str, dict[str, Any]]
_HERE: Final = "namespaces/default"


def _large_map(count: int) -> _Large:
    return SAMPLES["ConfigMap"].path, {"data": {f"k{i}": "v" * 30 for i in range(count)}}


def _large_labels(count: int) -> _Large:
    labels = {f"l{i}": "x" for i in range(count)}
    return SAMPLES["ConfigMap"].path, {"metadata": {"labels": labels}}


def _large_owners(count: int) -> _Large:
    owner = {"apiVersion": "v1", "kind": "Secret"}
    owners = [{**owner, "name": f"n{i}", "uid": f"u{i}"} for i in range(count)]
    return SAMPLES["ConfigMap"].path, {"metadata": {"ownerReferences": owners}}


def _large_workload(count: int) -> _Large:
    sample = SAMPLES["Deployment"]
    document = json.loads(json.dumps(sample.document))
    (container,) = document["spec"]["template"]["spec"]["containers"]
    container["env"] = [{"name": f"E{i}", "value": "v" * 20} for i in range(count)]
    return sample.path, document


def _large_pod(count: int) -> _Large:
    sample = SAMPLES["Pod"]
    document = json.loads(json.dumps(sample.document))
    spec = document["spec"]
    spec["tolerations"] = [{"key": f"k{i}", "operator": "Exists"} for i in range(count)]
    spec["volumes"] = [{"name": f"v{i}", "emptyDir": {}} for i in range(count // 10)]
    return sample.path, document


def _large_role(count: int) -> _Large:
    names = [f"r{i}" for i in range(count // 10)]
    rules = [
        {"apiGroups": names, "resources": names, "verbs": names},
        *({"apiGroups": [""], "resources": [name], "verbs": ["get"]} for name in names),
    ]
    return f"/apis/rbac.authorization.k8s.io/v1/{_HERE}/roles", {"rules": rules}


def _large_policy(count: int) -> _Large:
    ports = [{"port": 1 + i % 65_000} for i in range(count)]
    spec = {"podSelector": {}, "ingress": [{"ports": ports}]}
    return f"/apis/networking.k8s.io/v1/{_HERE}/networkpolicies", {"spec": spec}


def _large_definition(count: int) -> _Large:
    properties = {
        f"p{i}": {"type": "object", "properties": {f"q{j}": {"type": "string"} for j in range(20)}}
        for i in range(count // 20)
    }
    sample = SAMPLES["CustomResourceDefinition"]
    document = json.loads(json.dumps(sample.document))
    schema = {"type": "object", "properties": properties}
    document["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return sample.path, document


_LARGE: Final = (
    *(_large_map, _large_labels, _large_owners, _large_workload, _large_pod, _large_role),
    *(_large_policy, _large_definition),
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


def streams(seed: int, token: str) -> Iterator[bytes]:
    """Yield what one connection each sends: HTTP that is broken, endless or means two things."""
    dice = random.Random(seed)
    while True:
        made = dice.choice(_STREAMS)(dice)
        if dice.random() < 0.2:
            at = dice.randrange(len(made))
            made = made[:at] + dice.randbytes(dice.choice((1, 4, 100))) + made[at:]
        if dice.random() < 0.1:
            made = made[: dice.randrange(len(made))]
        yield made.replace(b"@TOKEN", token.encode())


def _head(line: str, *fields: str) -> bytes:
    own = ("Host: x", "Authorization: Bearer @TOKEN", *fields)
    return "\r\n".join((f"{line} HTTP/1.1", *own, "", "")).encode("latin-1", "replace")


def _pipelined(dice: random.Random) -> bytes:
    lines = ("GET /api", "GET /openapi/v2", "GET /api/v1/configmaps", "GET /version", "GET /x")
    return b"".join(_head(dice.choice(lines)) for _ in range(dice.choice((2, 50, 400))))


def _chunked(dice: random.Random) -> bytes:
    sizes = ("0", "1", "5", "-1", "FFFFFFFFFFFFFFFF", "1" * 400, "5;" + "x" * 5_000, "", "0x5", "g")
    chunks = (f"{dice.choice(sizes)}\r\n" + "a" * dice.choice((0, 5)) + "\r\n" for _ in range(9))
    length = dice.choice(((), ("Content-Length: 5",)))
    fields = ("Content-Type: application/json", "Transfer-Encoding: chunked", *length)
    head = _head("POST /api/v1/namespaces/default/configmaps", *fields)
    return head + "".join(chunks).encode() + b"0\r\n\r\n"


def _flooded(dice: random.Random) -> bytes:
    count, size = dice.choice(((90, 10), (5_000, 10), (10, 9_000), (1, 300_000)))
    name = dice.choice(("X-{}", "X", "Content-Length", "Impersonate-Group", "Transfer-Encoding"))
    return _head("GET /api", *(f"{name.format(i)}: {'v' * size}" for i in range(count)))


def _malformed(dice: random.Random) -> bytes:
    fields = (
        *("Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 1, 2"),
        *("Transfer-Encoding: gzip, chunked", ": x", "X", "X : y", " folded", "X: \x00", "X: \xff"),
        *("Content-Encoding: gzip", "Expect: nothing", "Host: a", "Connection: close, upgrade"),
        *("Upgrade: h2c", "Upgrade: SPDY/3.1", "Content-Length: 3000000", "Range: bytes=9-1"),
    )
    method, path = (
        dice.choice(("GET", "POST", "", "G T", "\x16\x03")),
        dice.choice(("/api", "x", "")),
    )
    chosen = (dice.choice(fields) for _ in range(dice.choice((1, 2, 6))))
    return _head(f"{method} {path}", *chosen) + dice.randbytes(20)


def _upgraded(dice: random.Random) -> bytes:
    verb = dice.choice(("exec", "attach", "portforward", "proxy", "log"))
    path = f"/api/v1/namespaces/default/pods/x-{dice.randrange(512)}/{verb}"
    protocol = dice.choice(("v5.channel.k8s.io", "v4.channel.k8s.io", "x", "portforward.k8s.io"))
    fields = (
        *("Connection: Upgrade", f"Upgrade: {dice.choice(('websocket', 'SPDY/3.1', 'x'))}"),
        *("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"),
        *(f"Sec-WebSocket-Protocol: {protocol}", f"X-Stream-Protocol-Version: {protocol}"),
    )
    query = dice.choice(
        ("", "?command=a&stdin=1", "?ports=80&ports=99999", "?command=" + "a" * 900)
    )
    method = dice.choice(("GET", "POST"))
    return _head(f"{method} {path}{query}", *fields) + dice.randbytes(500)


def _watching(dice: random.Random) -> bytes:
    """Watches, one behind the other, of a client that says no more."""
    watch = _head("GET /api/v1/configmaps?watch=true&timeoutSeconds=1")
    return watch * dice.choice((1, 3, 20))


_STREAMS: Final = (_pipelined, _chunked, _flooded, _malformed, _upgraded, _watching)


class _Maker:
    """Makes requests from one random generator."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def request(self) -> HostileRequest:
        make = self._dice.choices(
            (
                *(self._create, self._replace, self._patch, self._read, self._delete, self._odd),
                *(self._large, self._far),
            ),
            (30, 15, 25, 15, 8, 7, 0.3, 2),
        )[0]
        method, target, type_, body = make()
        accepts = _ODD_ACCEPTS if self._happens(0.03) else _ACCEPTS
        headers = [("Accept", self._dice.choice(accepts))]
        if type_ is not None:
            headers.append(("Content-Type", type_))
        if self._happens(0.08):
            headers.append(self._dice.choice(_HEADERS))
        elif self._happens(0.1):
            headers.append(("Impersonate-User", TENANT))
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

    def _large(self) -> tuple[str, str, str | None, bytes]:
        """A body that is as large as bodies may be, or a little larger."""
        path, document = self._dice.choice(_LARGE)(self._dice.choice((2_000, 10_000, 22_000)))
        meta = document.setdefault("metadata", {})
        if "." not in meta.get("name", ""):  # that of a definition follows from its content
            meta["name"] = f"large-{self._dice.randrange(6)}"
        name = meta["name"]
        query = "?dryRun=All" if self._happens(0.5) else "?"
        if self._happens(0.5):
            return "POST", path + query, "application/json", json.dumps(document).encode()
        type_, manager = self._dice.choice(_PATCHES[1:]), self._dice.randrange(20)
        target = f"{path}/{name}{query}&fieldManager=m{manager}"
        force = "&force=true" if type_ == _PATCHES[3] else ""
        return "PATCH", target + force, type_, json.dumps(document).encode()

    def _far(self) -> tuple[str, str, str | None, bytes]:
        """A read of many objects: by long selectors, in the past, by a watch."""
        sample = self._dice.choice((*SAMPLES.values(), *[SAMPLES["ConfigMap"]] * 9))
        count = self._dice.choice((10, 300, 1_500))
        term = self._dice.choice(("!a{}", "a!=b{}", "a in (b,c{})", "a{}", "a notin (c{})"))
        parts = ["timeoutSeconds=1"]
        if self._happens(0.6):
            parts.append("labelSelector=" + quote(",".join(term.format(i) for i in range(count))))
        if self._happens(0.3):
            terms = (f"metadata.name!=a{i}" for i in range(min(count, 300)))
            parts.append("fieldSelector=" + quote(",".join(terms)))
        if self._happens(0.5):
            parts.append(f"resourceVersion={self._dice.randrange(3_000)}")
            parts.append(self._dice.choice(("", "watch=true", "resourceVersionMatch=Exact")))
        method = "DELETE" if self._happens(0.02) else "GET"
        return method, sample.path + "?" + "&".join(filter(None, parts)), None, b""

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
            name = self._dice.choice(_PARAMETERS)
            if name == "timeoutSeconds" and value in _ENDLESS:
                continue
            parts.append(f"{name}={quote(value, errors='replace')}")
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
            # Copies, and few of what is large: repetitions of repetitions would fill gigabytes.
            text = json.dumps(parent[-1])
            count = min(self._dice.choice((1, 2, 300)), _REPEATED_BYTES // len(text))
            parent.extend(json.loads(text) for _ in range(count))
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
        type_ = bytes_field(1, b"v1") + bytes_field(2, kind.encode())
        inner = b"".join(
            bytes_field(self._dice.choice((1, 2, 3, 50029)), self._noise()) for _ in range(3)
        )
        for _ in range(self._dice.choice((0, 0, 3, 200))):
            inner = bytes_field(self._dice.choice((1, 2)), inner)
        return b"k8s\x00" + bytes_field(1, type_) + bytes_field(2, inner) + self._noise()[:3]

    def _noise(self) -> bytes:
        return self._dice.randbytes(self._dice.choice((0, 1, 8, 64, 1_000)))


def _containers(value: Any) -> Iterator[Any]:
    """Yield every mapping and list of a document, the whole first."""
    if isinstance(value, dict | list):
        yield value
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _containers(inner)
