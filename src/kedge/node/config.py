"""The configuration of a node agent, which `kedge.config` builds."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery.quantity import Quantity

MOST_PODS: Final = 110
"""The kubelet's default."""
RESOLUTION: Final = 60
"""Default seconds between two usage reports."""
PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
"""The directory where device plugins register by default."""
MOST_PIDS: Final = 4096
"""Processes and threads of one pod: enough for most pods, and a bound for fork bombs."""


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """The address and the credentials with which a machine joins a cluster."""

    url: str
    token: str
    ca_hash: str = ""
    """The hash of the public key of the cluster's authority: `sha256:` and the digest."""
    ca_pem: bytes = b""
    """The certificate of the authority."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one node agent; it does not change while the agent runs."""

    name: str
    """The node's name in the cluster."""
    cluster: str
    """The cluster's name among those on this machine."""
    state: Path
    """The directory of all files of the node."""
    images: Path
    """The directory of images, which the nodes of one machine share."""
    hidden: tuple[Path, ...] = ()
    """Paths that no container may see, the cluster's directory first: it holds keys and tokens."""
    listed: tuple[Path, ...] = ()
    """Directories with links to clusters; the targets of these links are hidden as well."""
    address: str = "127.0.0.1"
    """The node's InternalIP; the agent listens on it."""
    port: int = 0
    """The port of the agent; 0 means any free one."""
    labels: Mapping[str, str] = {}
    """Labels of the node."""
    exposed_labels: tuple[str, ...] = ()
    """Keys, or patterns of keys, of the node labels that pods may read besides zone and region."""
    host_image: bool = True
    """Whether pods may use the image `host`."""
    host_image_shown: tuple[Path, ...] = ()
    """Paths that the image `host` shows although they are hidden by default."""
    image_map: tuple[str, ...] = ()
    """PATTERN=IMAGE: the image to use for matching names; the first match counts."""
    reserved: Mapping[str, Quantity] = {}
    """Resources that are not allocatable to pods."""
    plugins: Path | None = None
    """The directory where device plugins register; None for a directory of the node's own."""
    devices: Mapping[str, int] = {}
    """Devices to simulate: the number by resource name."""
    max_pods: int = MOST_PODS
    max_pids: int = MOST_PIDS
    """Processes and threads of one pod; -1 for no limit."""
    metrics_resolution: int = RESOLUTION
    """Seconds between two usage reports."""
    restart_reason: str = ""
    """How the previous agent process ended, if this one replaces it."""

    @property
    def pods(self) -> Path:
        """The directories of pods, by uid."""
        return self.state / "pods"

    @property
    def logs(self) -> Path:
        """The logs of containers, by pod and container."""
        return self.state / "logs"

    @property
    def runtime(self) -> Path:
        """The files of the supervisor."""
        return self.state / "runtime"

    @property
    def usage(self) -> Path:
        """The usage of pods during the last day."""
        return self.state / "usage"

    @property
    def own_plugins(self) -> Path:
        """The directory for device plugins if the configured one is not available."""
        return self.state / "kubelet" / "device-plugins"

    @property
    def pki(self) -> Path:
        """The node's credentials: node.crt, node.key, ca.crt, and serving.crt if it was
        requested."""
        return self.state / "pki"

    @property
    def cgroup(self) -> str:
        """The cgroup of all pods, below the root of each hierarchy. It contains a hash, because two
        users of one machine may have clusters of the same name, and each agent removes cgroups of
        pods that it does not know."""
        suffix = hashlib.sha256(os.fsencode(self.state)).hexdigest()[:10]
        return f"/kedge/{self.cluster}-{self.name}-{suffix}"
