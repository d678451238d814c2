"""Rules for probes and lifecycle hooks."""

from collections.abc import Iterator
from typing import Final

from kedge.api import rules
from kedge.api.core_v1.nesting import within
from kedge.api.core_v1.pod.probe import HTTPGetAction, Lifecycle, LifecycleHandler, Probe
from kedge.api.core_v1.pod.spec import PodOS
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_MIDDLE: Final = [
    "ABRT",
    "ALRM",
    "BUS",
    "CHLD",
    "CLD",
    "CONT",
    "FPE",
    "HUP",
    "ILL",
    "INT",
    "IO",
    "IOT",
    "KILL",
    "PIPE",
    "POLL",
    "PROF",
    "PWR",
    "QUIT",
    "RTMAX",
    "RTMIN",
    "SEGV",
    "STKFLT",
    "STOP",
    "SYS",
    "TERM",
    "TRAP",
    "TSTP",
    "TTIN",
    "TTOU",
    "URG",
    "USR1",
    "USR2",
    "VTALRM",
    "WINCH",
    "XCPU",
    "XFSZ",
]
LINUX_SIGNALS: Final = sorted(
    [f"SIG{name}" for name in _MIDDLE]
    + [f"SIGRTMIN+{i}" for i in range(1, 16)]
    + [f"SIGRTMAX-{i}" for i in range(1, 15)]
)
WINDOWS_SIGNALS: Final = ("SIGKILL", "SIGTERM")

_COUNTS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_ONE_HANDLER: Final = "may not specify more than 1 handler type"


def validate_liveness(probe: Probe) -> Iterator[FieldError]:
    """Everything wrong with a liveness or startup probe: one success must be enough."""
    yield from _probe(probe)
    if probe.successThreshold != 1:
        yield FieldError.invalid("successThreshold", probe.successThreshold, "must be 1")


def validate_readiness(probe: Probe) -> Iterator[FieldError]:
    """Everything wrong with a readiness probe: it ends nothing, so it has no grace period."""
    yield from _probe(probe)
    grace = probe.terminationGracePeriodSeconds
    if grace is not None:
        why = "must not be set for readinessProbes"
        yield FieldError.invalid("terminationGracePeriodSeconds", grace, why)


def validate_lifecycle(
    lifecycle: Lifecycle, grace: int | None, os: PodOS | None
) -> Iterator[FieldError]:
    """Everything wrong with a container's hooks, `grace` being the pod's time to end."""
    if lifecycle.postStart is not None:
        yield from within("postStart", _handler(lifecycle.postStart, grace))
    if lifecycle.preStop is not None:
        yield from within("preStop", _handler(lifecycle.preStop, grace))
    if lifecycle.stopSignal is not None:
        yield from _stop_signal(lifecycle.stopSignal, os)


def _probe(probe: Probe) -> Iterator[FieldError]:
    yield from _handler(probe, None)
    for name in _COUNTS:
        yield from rules.nonnegative(name, getattr(probe, name))
    grace = probe.terminationGracePeriodSeconds
    if grace is not None and grace <= 0:
        yield FieldError.invalid("terminationGracePeriodSeconds", grace, "must be greater than 0")


def _handler(handler: Probe | LifecycleHandler, grace: int | None) -> Iterator[FieldError]:
    found = 0
    for name in ("exec", "httpGet", "tcpSocket", "grpc", "sleep"):
        action = getattr(handler, name, None)
        if action is None:
            continue
        found += 1
        if found > 1:
            yield FieldError.forbidden(name, _ONE_HANDLER)
        elif name == "exec":
            if not action.command:
                yield FieldError.required("exec.command")
        elif name == "httpGet":
            yield from within("httpGet", _http_get(action))
        elif name == "sleep":
            yield from _sleep(action.seconds, grace)
        else:
            yield from validate_port(f"{name}.port", action.port)
    if not found:
        yield FieldError.required("", "must specify a handler type")


def _http_get(action: HTTPGetAction) -> Iterator[FieldError]:
    if not action.path:
        yield FieldError.required("path")
    yield from validate_port("port", action.port)
    if action.scheme not in ("HTTP", "HTTPS"):
        yield FieldError.not_supported("scheme", action.scheme, ("HTTP", "HTTPS"))
    for header in action.httpHeaders:
        yield from rules.problems("httpHeaders", header.name, names.http_header_name(header.name))
        # Upstream leaves values to Go's HTTP client, which refuses these at each probe.
        found = names.http_header_value(header.value)
        yield from rules.problems("httpHeaders", header.value, found)


def validate_port(path: str, port: int | str) -> Iterator[FieldError]:
    """Everything wrong with a port given by number or by name."""
    found = names.port_number(port) if isinstance(port, int) else names.port_name(port)
    yield from rules.problems(path, port, found)


def _sleep(seconds: int, grace: int | None) -> Iterator[FieldError]:
    if grace is not None and not 0 <= seconds <= grace:
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield FieldError.invalid("sleep", seconds, why)


def _stop_signal(signal: str, os: PodOS | None) -> Iterator[FieldError]:
    if os is None:
        why = "may not be set for containers with empty `spec.os.name`"
        yield FieldError.forbidden("stopSignal", why)
        return
    known = {"linux": LINUX_SIGNALS, "windows": WINDOWS_SIGNALS}.get(os.name)
    if known is not None and signal not in known:
        yield FieldError.not_supported("stopSignal", signal, known)
