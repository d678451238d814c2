"""Containers: image, command, ports, variables, mounts and resources."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import field

from kedge.api.core_v1.pod.probe import Lifecycle, Probe
from kedge.api.core_v1.pod.security import SecurityContext
from kedge.api.core_v1.references import (
    ConfigMapKeySelector,
    FileKeySelector,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretKeySelector,
)
from kedge.api.model import (
    EXTENSION,
    SET,
    Int32,
    Model,
    defaults_to,
    keyed,
    listed_by,
    pairs,
    spelling_of,
)
from kedge.machinery.quantity import Quantity


class ContainerPort(Model):
    """A port that a container listens on."""

    __required__ = ("containerPort",)

    name: str = ""
    """A name for the port, unique in the pod, that services can refer to."""
    hostPort: Int32 = 0
    """The port of the node through which it is reached as well."""
    containerPort: Int32 = 0
    """The port itself."""
    protocol: Annotated[str, defaults_to("TCP")] = ""
    """TCP, UDP or SCTP. Default TCP."""
    hostIP: str = ""
    """The address of the node to bind the host port to."""


class EnvVarSource(Model):
    """Where the value of a variable comes from; exactly one field is set."""

    fieldRef: ObjectFieldSelector | None = None
    """A field of the pod."""
    resourceFieldRef: ResourceFieldSelector | None = None
    """A request or limit of a container."""
    configMapKeyRef: ConfigMapKeySelector | None = None
    """A key of a config map."""
    secretKeyRef: SecretKeySelector | None = None
    """A key of a secret."""
    fileKeyRef: FileKeySelector | None = None
    """A variable in a file that an emptyDir volume holds."""
    containerFieldRef: Annotated[ObjectFieldSelector | None, EXTENSION] = None
    """Kedge's own: a request or limit of the container itself, such as resources.limits.cpu."""
    containerfieldRef: Annotated[ObjectFieldSelector | None, spelling_of("containerFieldRef")] = (
        None
    )
    """Kedge's own: another spelling of containerFieldRef."""


class EnvVar(Model):
    """One environment variable."""

    __required__ = ("name",)

    name: str = ""
    """Name of the variable; anything printable but an equals sign."""
    value: str = ""
    """The value. $(NAME) refers to variables defined before; $$ stands for one dollar."""
    valueFrom: EnvVarSource | None = None
    """Where the value comes from instead."""


class ConfigMapEnvSource(Model):
    """A config map whose keys all become variables."""

    name: str = ""
    """Name of the config map."""
    optional: bool | None = None
    """Whether the config map may be missing."""


class SecretEnvSource(Model):
    """A secret whose keys all become variables."""

    name: str = ""
    """Name of the secret."""
    optional: bool | None = None
    """Whether the secret may be missing."""


class EnvFromSource(Model):
    """A whole object turned into variables."""

    prefix: str = ""
    """Put before every key."""
    configMapRef: ConfigMapEnvSource | None = None
    """The config map to take."""
    secretRef: SecretEnvSource | None = None
    """The secret to take."""


class ResourceClaim(Model):
    """One of the pod's resource claims that a container uses."""

    __required__ = ("name",)

    name: str = ""
    """Name of an entry in the pod's resourceClaims."""
    request: str = ""
    """Which request of the claim; empty means all of it."""


class ResourceRequirements(Model):
    """The requests and limits of a container."""

    limits: Mapping[str, Quantity] = {}
    """Amounts that may not be exceeded."""
    requests: Mapping[str, Quantity] = {}
    """Amounts set aside; defaults to the limits."""
    claims: Annotated[Sequence[ResourceClaim], listed_by("name")] = ()
    """Resource claims that the container uses."""


class ContainerResizePolicy(Model):
    """The action when one of the container's resources is resized."""

    __required__ = ("resourceName", "restartPolicy")

    resourceName: str = ""
    """Which resource: cpu or memory."""
    restartPolicy: str = ""
    """NotRequired or RestartContainer. Default NotRequired."""


class ContainerRestartRuleOnExitCodes(Model):
    """Exit codes that a restart rule looks for."""

    __required__ = ("operator",)

    operator: str = ""
    """In or NotIn."""
    values: Annotated[Sequence[Int32], SET] = ()
    """The exit codes compared with; at most 255."""


class ContainerRestartRule(Model):
    """The action when a container exits with certain codes."""

    __required__ = ("action",)

    action: str = ""
    """Restart or RestartAllContainers."""
    exitCodes: ContainerRestartRuleOnExitCodes | None = None
    """Applies when the exit code matches."""


class VolumeMount(Model):
    """Where a volume appears inside a container."""

    __required__ = ("name", "mountPath")

    name: str = ""
    """Name of one of the pod's volumes."""
    readOnly: bool = False
    """Whether the mount is read-only."""
    recursiveReadOnly: str | None = None
    """Whether mounts below it are read-only as well: Disabled, IfPossible or Enabled."""
    mountPath: str = ""
    """Where the volume appears; may not contain a colon."""
    subPath: str = ""
    """The part of the volume to mount, if not its root."""
    mountPropagation: str | None = None
    """How later mounts spread: None, HostToContainer or Bidirectional."""
    subPathExpr: str = ""
    """Like subPath, with $(NAME) replaced by the container's variables."""


class VolumeDevice(Model):
    """Where a raw block volume appears inside a container."""

    __required__ = ("name", "devicePath")

    name: str = ""
    """Name of a persistentVolumeClaim volume of the pod."""
    devicePath: str = ""
    """Where the device appears."""


class Container(Model):
    """One container of a pod."""

    __required__ = ("name",)

    name: str = ""
    """Name of the container, unique in the pod. Cannot be changed."""
    image: str = ""
    """The image to run."""
    command: Sequence[str] = ()
    """The entry point, in place of the image's. $(NAME) is replaced by variables."""
    args: Sequence[str] = ()
    """Arguments to the entry point, in place of the image's. $(NAME) is replaced by variables."""
    workingDir: str = ""
    """Directory to start in, if not the image's."""
    ports: Annotated[Sequence[ContainerPort], keyed("containerPort", "protocol")] = ()
    """Ports that the container listens on. Ports not listed are reachable too."""
    envFrom: Sequence[EnvFromSource] = ()
    """Objects whose keys all become variables; later ones and env win."""
    env: Annotated[Sequence[EnvVar], keyed("name"), pairs("name", "value")] = ()
    """Environment variables."""
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    """The requests and limits of the container."""
    resizePolicy: Sequence[ContainerResizePolicy] = ()
    """Whether a resize of each resource restarts the container."""
    restartPolicy: str | None = None
    """When the container restarts: Always, OnFailure or Never; in an init container Always makes a
    sidecar."""
    restartPolicyRules: Sequence[ContainerRestartRule] = ()
    """Exceptions to restartPolicy, the first match deciding."""
    volumeMounts: Annotated[Sequence[VolumeMount], keyed("mountPath")] = ()
    """Volumes to mount."""
    volumeDevices: Annotated[Sequence[VolumeDevice], keyed("devicePath")] = ()
    """Raw block volumes to attach."""
    livenessProbe: Probe | None = None
    """Tells whether the container lives; if not, it is restarted."""
    readinessProbe: Probe | None = None
    """Tells whether the container can serve; if not, services leave it out."""
    startupProbe: Probe | None = None
    """Tells whether the container has started; the other probes wait for it."""
    lifecycle: Lifecycle | None = None
    """The hooks after the start and before the stop."""
    terminationMessagePath: str = ""
    """File from which the reason of the end is read. Default /dev/termination-log."""
    terminationMessagePolicy: str = ""
    """Whether a failure without a message shows the end of the log: File or FallbackToLogsOnError.
    """
    imagePullPolicy: str = ""
    """When the image is pulled: Always, Never or IfNotPresent."""
    securityContext: SecurityContext | None = None
    """Security settings of the container."""
    stdin: bool = False
    """Whether standard input is kept open for clients to attach."""
    stdinOnce: bool = False
    """Whether standard input closes when the first client leaves."""
    tty: bool = False
    """Whether the container gets a terminal; needs stdin."""


class EphemeralContainer(Container):
    """A container added to a running pod, for looking into it. It is never restarted."""

    targetContainerName: str = ""
    """The container whose processes it can see; empty means the pod's settings."""
