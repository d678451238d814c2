"""Security settings of pods and of single containers."""

from collections.abc import Sequence

from msgspec import field

from kedge.api.model import Model


class Capabilities(Model):
    """Linux capabilities beyond or below those the runtime grants."""

    add: Sequence[str] = ()
    """Capabilities granted in addition."""
    drop: Sequence[str] = ()
    """Capabilities taken away."""


class SELinuxOptions(Model):
    """The SELinux label of a container."""

    user: str = ""
    """User part of the label."""
    role: str = ""
    """Role part of the label."""
    type: str = ""
    """Type part of the label."""
    level: str = ""
    """Level part of the label."""


class WindowsSecurityContextOptions(Model):
    """Settings that only Windows knows."""

    gmsaCredentialSpecName: str | None = None
    """Name of the GMSA credential spec to use."""
    gmsaCredentialSpec: str | None = None
    """The GMSA credential spec itself."""
    runAsUserName: str | None = None
    """The user that the entry point runs as."""
    hostProcess: bool | None = None
    """Whether the container runs as a process of the host; all containers of a pod must agree."""


class SeccompProfile(Model):
    """Which system calls a container may make."""

    __required__ = ("type",)

    type: str = ""
    """Localhost (a file on the node), RuntimeDefault or Unconfined."""
    localhostProfile: str | None = None
    """The file on the node, for type Localhost only."""


class AppArmorProfile(Model):
    """Which AppArmor profile confines a container."""

    __required__ = ("type",)

    type: str = ""
    """Localhost (loaded on the node), RuntimeDefault or Unconfined."""
    localhostProfile: str | None = None
    """Name of the profile loaded on the node, for type Localhost only."""


class SecurityContext(Model):
    """Security settings of one container; they win over the pod's."""

    capabilities: Capabilities | None = None
    """Capabilities to add or drop."""
    privileged: bool | None = None
    """Whether the container's processes are root on the host in all but name. Default false."""
    seLinuxOptions: SELinuxOptions | None = None
    """SELinux label of the container."""
    windowsOptions: WindowsSecurityContextOptions | None = None
    """Settings for Windows."""
    runAsUser: int | None = None
    """User id of the entry point, if not the image's."""
    runAsGroup: int | None = None
    """Group id of the entry point, if not the runtime's choice."""
    runAsNonRoot: bool | None = None
    """Whether the node must refuse to start the container as root."""
    readOnlyRootFilesystem: bool | None = None
    """Whether the root file system is read-only. Default false."""
    allowPrivilegeEscalation: bool | None = None
    """Whether a process may gain more privileges than its parent."""
    procMount: str | None = None
    """How /proc is mounted: Default or Unmasked."""
    seccompProfile: SeccompProfile | None = None
    """System calls that are allowed."""
    appArmorProfile: AppArmorProfile | None = None
    """AppArmor profile of the container."""


class Sysctl(Model):
    """A kernel parameter to set for a pod."""

    __required__ = ("name", "value")

    name: str = ""
    """Name of the parameter."""
    value: str = field(default_factory=str)
    """Value to set."""


class PodSecurityContext(Model):
    """Security settings shared by all containers of a pod."""

    seLinuxOptions: SELinuxOptions | None = None
    """SELinux label of every container."""
    windowsOptions: WindowsSecurityContextOptions | None = None
    """Settings for Windows."""
    runAsUser: int | None = None
    """User id of every entry point, if not the image's."""
    runAsGroup: int | None = None
    """Group id of every entry point, if not the runtime's choice."""
    runAsNonRoot: bool | None = None
    """Whether the node must refuse to start a container as root."""
    supplementalGroups: Sequence[int] = ()
    """Further groups of every container's first process."""
    supplementalGroupsPolicy: str | None = None
    """Whether groups listed in the image count too: Merge or Strict."""
    fsGroup: int | None = None
    """Group that owns volumes which support it; also a further group of every process."""
    sysctls: Sequence[Sysctl] = ()
    """Kernel parameters of the pod's namespaces."""
    fsGroupChangePolicy: str | None = None
    """When ownership of a volume is changed: OnRootMismatch or Always."""
    seccompProfile: SeccompProfile | None = None
    """System calls that are allowed."""
    appArmorProfile: AppArmorProfile | None = None
    """AppArmor profile of every container."""
    seLinuxChangePolicy: str | None = None
    """How volumes get their SELinux label: MountOption or Recursive."""
