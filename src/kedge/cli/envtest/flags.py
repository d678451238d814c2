"""The flags of kube-apiserver, as `kedge envtest` understands them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kedge.cli.envtest.etcd import read_flags
from kedge.cli.failure import Failure

RENAMED: Final = {"bind-address": "host", "secure-port": "port"}
"""Flags that `kedge server` has under another name."""
SAME: Final = (
    "admission-control",
    "admission-control-config-file",
    "audit-log-path",
    "authentication-config",
    "authentication-token-webhook-cache-ttl",
    "authentication-token-webhook-config-file",
    "authentication-token-webhook-version",
    "authorization-config",
    "disable-admission-plugins",
    "enable-admission-plugins",
    "encryption-provider-config",
    "encryption-provider-config-automatic-reload",
    "max-mutating-requests-inflight",
    "max-requests-inflight",
    "request-timeout",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "service-account-extend-token-expiration",
    "service-node-port-range",
    "token-auth-file",
)
"""Flags that `kedge server` has with the same meaning."""
USED: Final = (
    "authorization-mode",
    "cert-dir",
    "client-ca-file",
    "etcd-servers",
    "service-cluster-ip-range",
    "tls-cert-file",
    "tls-private-key-file",
)
"""Flags that this program acts on itself."""
REQUIRED_VALUES: Final = {
    "allow-privileged": ("true", "containers are not run, and privileged ones are accepted"),
    "insecure-port": ("0", "there is no port without TLS"),
}
"""Flags that have their effect with one value only."""
FIXED: Final = {
    "service-account-issuer": "tokens are issued by https://kubernetes.default.svc.cluster.local",
    "service-account-key-file": "tokens are signed with a key of kedge's own",
    "service-account-signing-key-file": "tokens are signed with a key of kedge's own",
    "feature-gates": "there are no feature gates; features are as by default in Kubernetes",
    "runtime-config": "kedge always serves the same APIs",
    "audit-policy-file": "--audit-log-path logs the metadata of all requests",
    "anonymous-auth": "anonymous requests are accepted, and may do what roles allow",
}
"""Flags whose value does not count, and what does."""
WITHOUT_EFFECT: Final = frozenset(
    [
        "advertise-address",
        "aggregator-reject-forwarding-redirect",
        "allow-metric-labels",
        "allow-metric-labels-manifest",
        "alsologtostderr",
        "api-audiences",
        "audit-log-batch-buffer-size",
        "audit-log-batch-max-size",
        "audit-log-batch-max-wait",
        "audit-log-batch-throttle-burst",
        "audit-log-batch-throttle-enable",
        "audit-log-batch-throttle-qps",
        "audit-log-compress",
        "audit-log-format",
        "audit-log-maxage",
        "audit-log-maxbackup",
        "audit-log-maxsize",
        "audit-log-mode",
        "audit-log-truncate-enabled",
        "audit-log-truncate-max-batch-size",
        "audit-log-truncate-max-event-size",
        "audit-log-version",
        "audit-webhook-batch-buffer-size",
        "audit-webhook-batch-max-size",
        "audit-webhook-batch-max-wait",
        "audit-webhook-batch-throttle-burst",
        "audit-webhook-batch-throttle-enable",
        "audit-webhook-batch-throttle-qps",
        "audit-webhook-config-file",
        "audit-webhook-initial-backoff",
        "audit-webhook-mode",
        "audit-webhook-truncate-enabled",
        "audit-webhook-truncate-max-batch-size",
        "audit-webhook-truncate-max-event-size",
        "audit-webhook-version",
        "authorization-webhook-cache-authorized-ttl",
        "contention-profiling",
        "coordinated-leadership-lease-duration",
        "coordinated-leadership-renew-deadline",
        "coordinated-leadership-retry-period",
        "cors-allowed-origins",
        "debug-socket-path",
        "default-not-ready-toleration-seconds",
        "default-unreachable-toleration-seconds",
        "default-watch-cache-size",
        "delete-collection-workers",
        "disable-http2-serving",
        "disabled-metrics",
        "emulated-version",
        "emulation-forward-compatible",
        "enable-aggregator-routing",
        "enable-bootstrap-token-auth",
        "enable-garbage-collector",
        "enable-logs-handler",
        "enable-priority-and-fairness",
        "endpoint-reconciler-type",
        "etcd-cafile",
        "etcd-certfile",
        "etcd-compaction-interval",
        "etcd-count-metric-poll-period",
        "etcd-db-metric-poll-interval",
        "etcd-healthcheck-timeout",
        "etcd-keyfile",
        "etcd-prefix",
        "etcd-readycheck-timeout",
        "etcd-servers-overrides",
        "event-ttl",
        "external-hostname",
        "goaway-chance",
        "http2-max-streams-per-connection",
        "insecure-bind-address",
        "kubelet-certificate-authority",
        "kubelet-client-certificate",
        "kubelet-client-key",
        "kubelet-port",
        "kubelet-preferred-address-types",
        "kubelet-timeout",
        "kubernetes-service-node-port",
        "lease-reuse-duration-seconds",
        "livez-grace-period",
        "log-flush-frequency",
        "log-json-info-buffer-size",
        "log-json-split-stream",
        "log-text-info-buffer-size",
        "log-text-split-stream",
        "logging-format",
        "logtostderr",
        "max-connection-bytes-per-sec",
        "min-compatibility-version",
        "min-request-timeout",
        "oidc-ca-file",
        "peer-advertise-ip",
        "peer-advertise-port",
        "peer-ca-file",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "proxy-client-cert-file",
        "proxy-client-key-file",
        "runtime-config-emulation-forward-compatible",
        "service-account-api-audiences",
        "service-account-jwks-uri",
        "service-account-lookup",
        "service-account-max-token-expiration",
        "show-hidden-metrics-for-version",
        "shutdown-delay-duration",
        "shutdown-send-retry-after",
        "shutdown-watch-termination-grace-period",
        "storage-backend",
        "storage-initialization-timeout",
        "storage-media-type",
        "strict-transport-security-directives",
        "tls-cipher-suites",
        "tls-curve-preferences",
        "tls-min-version",
        "tls-sni-cert-key",
        "tracing-config-file",
        "v",
        "vmodule",
        "watch-cache",
        "watch-cache-sizes",
    ]
)
"""Flags that are accepted and change nothing."""
QUIET: Final = frozenset(
    (
        "advertise-address",
        "insecure-bind-address",
        "logging-format",
        "service-account-issuer",
        "service-account-key-file",
        "service-account-signing-key-file",
        "v",
        "vmodule",
    )
)
"""Flags that envtest gives itself, or that do not concern tests: there is no warning."""
LISTS: Final = frozenset(
    (
        "admission-control",
        "authorization-mode",
        "disable-admission-plugins",
        "enable-admission-plugins",
        "etcd-servers",
        "feature-gates",
        "requestheader-allowed-names",
        "requestheader-extra-headers-prefix",
        "requestheader-group-headers",
        "requestheader-uid-headers",
        "requestheader-username-headers",
        "runtime-config",
        "service-cluster-ip-range",
    )
)
"""Flags that may be given several times: envtest appends what a suite asks for."""
STANDARD_OUTPUT: Final = "-"
MODES: Final = ("AlwaysAllow", "AlwaysDeny", "Node", "RBAC")


class ApiServerFlags(NamedTuple):
    """The command line of a kube-apiserver."""

    given: Mapping[str, str]
    """All flags."""
    server: Sequence[str]
    """Those that `kedge server` takes."""
    warnings: Sequence[str]


def translated(arguments: Sequence[str]) -> ApiServerFlags:
    """Return the flags of a command line; Failure names those that are unknown or impossible."""
    given = read_flags(arguments, LISTS)
    for name, value in given.items():
        _check(name, value)
    server = [f"--{RENAMED.get(name, name)}={value}" for name, value in _passed_on(given)]
    return ApiServerFlags(given, server, [*_warnings(given)])


def _check(name: str, value: str) -> None:
    known = (*SAME, *USED, *RENAMED, *REQUIRED_VALUES, *FIXED)
    if name not in known and name not in WITHOUT_EFFECT:
        raise Failure(f"unknown flag: --{name}")
    if name in REQUIRED_VALUES and value != REQUIRED_VALUES[name][0]:
        raise Failure(f"--{name}={value} is not supported: {REQUIRED_VALUES[name][1]}")
    if name == "authorization-mode":
        for mode in value.split(","):
            if mode not in MODES:
                why = f"the modes are {', '.join(MODES)}"
                raise Failure(f"--authorization-mode={mode} is not supported: {why}")


def _passed_on(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        if name == "audit-log-path" and value == STANDARD_OUTPUT:
            continue
        if name in RENAMED or name in SAME:
            yield name, value


def _warnings(given: Mapping[str, str]) -> Iterator[str]:
    if given.get("audit-log-path") == STANDARD_OUTPUT:
        yield "--audit-log-path=- has no effect: name a file"
    for name in given:
        if name in QUIET:
            continue
        if name in FIXED:
            yield f"--{name} has no effect: {FIXED[name]}"
        elif name in WITHOUT_EFFECT:
            yield f"--{name} has no effect"


def help_text() -> str:
    """Return the help of the program: envtest looks there for flags, one on each line."""
    names = sorted({*SAME, *USED, *RENAMED, *FIXED, "allow-privileged"} | WITHOUT_EFFECT)
    head = 'The kube-apiserver of "kedge envtest": an API server without controllers.'
    lines = [head, "", "Usage:", "  kube-apiserver [flags]", "", "Flags:"]
    return "\n".join([*lines, *(f"      --{name} string" for name in names), ""])
