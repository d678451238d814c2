"""The bounds that protect a cluster; each number is read from the code that enforces it."""

import importlib
from collections.abc import Iterable
from typing import Any, Final

from markdown import Page, table

INTRODUCTION: Final = """\
A request beyond a bound gets an error that says so. The bounds that a flag sets are in [Commands
and settings](commands.md)."""
WEB: Final = "kedge.web.limits:ServerLimits"
PLACES: Final = "kedge.web.connection_limits:ConnectionLimits"
IMAGE: Final = "kedge.node.images.unpack:ImageLimits"
SERVER: Final = "kedge.apiserver.config:ServerConfig"

LIMITS: Final = {
    "Requests": (
        ("concurrent reads (`--max-requests-inflight`)", f"{SERVER}.max_requests_inflight", ""),
        (
            "concurrent writes (`--max-mutating-requests-inflight`)",
            f"{SERVER}.max_mutating_requests_inflight",
            "",
        ),
        (
            "time for a request, apart from watches and streams (`--request-timeout`)",
            f"{SERVER}.request_timeout",
            "s",
        ),
        ("request line and headers", f"{WEB}.head_bytes", "bytes"),
        ("URL", f"{WEB}.url_bytes", "bytes"),
        ("headers", f"{WEB}.headers", ""),
        ("body", f"{WEB}.body_bytes", "bytes"),
        ("stored object", "kedge.apiserver.api:LARGEST_OBJECT", "bytes"),
        (
            "body of a review, a binding, a token request or delete options",
            "kedge.apiserver.body:SMALL",
            "bytes",
        ),
        (
            "bodies of all requests together; then the oldest incomplete one gets 429",
            f"{WEB}.bodies_bytes",
            "bytes",
        ),
        ("nesting of a body, in levels", "kedge.machinery.yaml_text:MAX_DEPTH", ""),
        ("lists and objects in a body", "kedge.machinery.container_count:MOST", ""),
        (
            "values in a YAML body, with those of aliases and merges",
            "kedge.machinery.yaml_text:MAX_NODES",
            "",
        ),
        ("owners of an object", "kedge.api.metadata:MOST_OWNERS", ""),
        ("pipelined requests", f"{WEB}.pipelined", ""),
        (
            "permissions of a role that its author must hold",
            "kedge.apiserver.authorization.rights:MOST_COMPARED",
            "",
        ),
        ("length of a signed token", "kedge.apiserver.authentication.jwt:LONGEST", "bytes"),
    ),
    "Connections": (
        ("all connections; fewer if the process may open fewer files", f"{PLACES}.total", ""),
        ("of one user, or of all service accounts of one namespace", f"{PLACES}.per_tenant", ""),
        ("not authenticated; beyond that the oldest one is closed", f"{PLACES}.strangers", ""),
        ("of one pod to the server, by any address", "kedge.node.network.forward:PER_SOURCE", ""),
        ("DNS queries of one pod per second", "kedge.dns.query_budget:PER_SECOND", ""),
        (
            "requests of the gateway to the Services of one namespace",
            "kedge.gateway.gateway:PER_NAMESPACE",
            "",
        ),
        (
            "exec, attach and port-forward sessions of one pod",
            "kedge.node.server.sessions:PER_POD",
            "",
        ),
        (
            "exec, attach and port-forward sessions of one node",
            "kedge.node.server.sessions:PER_NODE",
            "",
        ),
        ("time for a TLS handshake", f"{WEB}.handshake_seconds", "s"),
        ("time until the first request", f"{WEB}.first_seconds", "s"),
        ("time to send the headers", f"{WEB}.head_seconds", "s"),
        ("time to send the body", f"{WEB}.body_seconds", "s"),
        ("idle time of a connection", f"{WEB}.idle_seconds", "s"),
        ("time in which a client reads nothing of its answer", f"{WEB}.stall_seconds", "s"),
    ),
    "Watches": (
        (
            "changes of a resource that are kept for watches",
            "kedge.apiserver.watchcache:LOG_LENGTH",
            "",
        ),
        ("size of these changes", "kedge.apiserver.watchcache:LOG_BYTES", "bytes"),
        (
            "size of the changes of all resources",
            "kedge.apiserver.watchcache:ALL_LOGS_BYTES",
            "bytes",
        ),
    ),
    "Webhooks": (
        ("answer of a webhook", "kedge.apiserver.webhooks.caller:ANSWER_BYTES", "bytes"),
        (
            "answers of all webhooks together",
            "kedge.apiserver.webhooks.answer_budget:MOST_BYTES",
            "bytes",
        ),
        (
            "time for all webhooks of one request",
            "kedge.apiserver.webhooks.dispatch:MOST_SECONDS",
            "s",
        ),
    ),
    "Audit log": (
        ("size of a file", "kedge.apiserver.audit:Rotation.max_bytes", "bytes"),
        ("earlier files", "kedge.apiserver.audit:Rotation.backups", ""),
        (
            "entries that wait for the disk; further ones are dropped",
            "kedge.apiserver.audit:WAITING",
            "",
        ),
    ),
    "Containers": (
        ("size of a log file", "kedge.supervisor.container.logs:MOST_BYTES", "bytes"),
        ("log files of a container", "kedge.supervisor.container.logs:MOST_FILES", ""),
        ("layers of an image", "kedge.node.images.oci:MOST_LAYERS", ""),
        ("size of a layer, unpacked", f"{IMAGE}.layer_bytes", "bytes"),
        ("files in a layer", f"{IMAGE}.entries", ""),
        ("manifest or configuration of an image", f"{IMAGE}.document_bytes", "bytes"),
    ),
    "Reports of nodes": (
        ("pods", "kedge.metrics.frame_codec:MOST_PODS", ""),
        ("containers", "kedge.metrics.frame_codec:MOST_CONTAINERS", ""),
        ("answer of a kubelet", "kedge.apiserver.metrics.kubelets:MOST_BYTES", "bytes"),
    ),
    "Restarts": (
        ("failed starts in a row", "kedge.restarter.decision:MOST_FAILED_STARTS", ""),
        ("delay before a restart", "kedge.restarter.decision:LONGEST_DELAY_SECONDS", "s"),
        ("time of readiness that resets the delay", "kedge.restarter.decision:STEADY_SECONDS", "s"),
        ("size of server.log and node.log", "kedge.restarter.program:LOG_LIMIT", "bytes"),
    ),
}


def page() -> Page:
    body = "\n".join(section(title, rows) for title, rows in LIMITS.items())
    return Page("limits", "Limits", INTRODUCTION, body)


def section(title: str, rows: Iterable[tuple[str, str, str]]) -> str:
    found = [(what, shown(find(name), unit)) for what, name, unit in rows]
    return f"## {title}\n\n{table(('bound', 'most'), found)}"


def find(name: str) -> float:
    """Return the value of `module:CONSTANT`, or the default of `module:Class.field`."""
    module, _, path = name.partition(":")
    kind, _, field = path.partition(".")
    found: Any = getattr(importlib.import_module(module), kind)
    if not field:
        return float(found)
    if defaults := getattr(found, "__struct_defaults__", None):
        return float(
            dict(zip(found.__struct_fields__[-len(defaults) :], defaults, strict=True))[field]
        )
    return float(found.__dataclass_fields__[field].default)


def shown(value: float, unit: str) -> str:
    if unit != "bytes":
        return f"{value:,g} {unit}".strip() if value % 1 else f"{int(value):,} {unit}".strip()
    size = int(value)
    for name, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift:,} {name}"
    return f"{size:,} bytes"
