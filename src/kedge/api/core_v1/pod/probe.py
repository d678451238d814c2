"""Probes and lifecycle hooks: how a node talks to a running container."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.model import Int32, IntOrString, Model


class ExecAction(Model):
    """A command to run inside the container."""

    command: Sequence[str] = ()
    """The command and its arguments. No shell is involved; exit code 0 means success."""


class HTTPHeader(Model):
    """A header of an HTTP request."""

    __required__ = ("name", "value")

    name: str = ""
    """Name of the header."""
    value: str = field(default_factory=str)
    """Value of the header."""


class HTTPGetAction(Model):
    """An HTTP GET request to the container."""

    __required__ = ("port",)

    path: str = ""
    """Path of the request."""
    port: IntOrString = 0
    """Port to connect to, by number or by name."""
    host: str = ""
    """Host to connect to, if not the pod's address."""
    scheme: str = ""
    """HTTP or HTTPS."""
    httpHeaders: Sequence[HTTPHeader] = ()
    """Headers to send along; one name may occur several times."""


class TCPSocketAction(Model):
    """A TCP connection to the container; opening it is success."""

    __required__ = ("port",)

    port: IntOrString = 0
    """Port to connect to, by number or by name."""
    host: str = ""
    """Host to connect to, if not the pod's address."""


class GRPCAction(Model):
    """A gRPC health check of the container."""

    __required__ = ("port",)

    port: Int32 = 0
    """Port of the gRPC service, a number."""
    service: str | None = None
    """The service to check; empty for the server as a whole."""


class SleepAction(Model):
    """A pause."""

    __required__ = ("seconds",)

    seconds: int = field(default_factory=int)
    """How long to pause."""


class Probe(Model):
    """How and how often to check the health of a container."""

    exec: ExecAction | None = None
    """Run a command in the container."""
    httpGet: HTTPGetAction | None = None
    """Send an HTTP request to the container."""
    tcpSocket: TCPSocketAction | None = None
    """Open a connection to the container."""
    grpc: GRPCAction | None = None
    """Ask the container's gRPC health service."""
    initialDelaySeconds: Int32 = 0
    """Time from the container's start to the first probe."""
    timeoutSeconds: Int32 = 0
    """Time after which a probe without answer has failed. Default 1."""
    periodSeconds: Int32 = 0
    """Time from one probe to the next. Default 10."""
    successThreshold: Int32 = 0
    """Successes in a row that turn failure into success. Default 1."""
    failureThreshold: Int32 = 0
    """Failures in a row that turn success into failure. Default 3."""
    terminationGracePeriodSeconds: int | None = None
    """Time the container gets to end once the probe has failed, if not the pod's own."""


class LifecycleHandler(Model):
    """An action in the life cycle of a container."""

    exec: ExecAction | None = None
    """Run a command in the container."""
    httpGet: HTTPGetAction | None = None
    """Send an HTTP request to the container."""
    tcpSocket: TCPSocketAction | None = None
    """Accepted for old manifests and never carried out."""
    sleep: SleepAction | None = None
    """Pause for a while."""


class Lifecycle(Model):
    """The hooks after the start and before the stop of a container."""

    postStart: LifecycleHandler | None = None
    """Runs right after the start; a failure kills the container."""
    preStop: LifecycleHandler | None = None
    """Runs before the container is stopped; counts against the grace period."""
    stopSignal: str | None = None
    """The signal that stops the container, if not the one its image names. Needs spec.os.name."""
