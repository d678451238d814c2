"""What a node agent is told when it starts; `kedge.config` fills it in."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kedge.machinery.quantity import Quantity

MOST_PODS: Final = 110
"""As many as upstream's nodes take unless told otherwise."""
RESOLUTION: Final = 60
"""Seconds between two reports of what is used, unless told otherwise."""
PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
"""Where Kubernetes has device plugins register, which they take for granted."""
MOST_PIDS: Final = 4096
"""Processes and threads of one pod: enough for most, and an end to any fork bomb."""


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine is told so that it can join a cluster elsewhere."""

    url: str
    token: str
    ca_hash: str = ""
    """Which key the cluster's authority has: `sha256:` and the digest."""
    ca_pem: bytes = b""
    """The authority itself."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one node agent needs to know; nothing in it changes while it runs."""

    name: str
    """The node's name in the cluster."""
    cluster: str
    """The cluster's name among those on this machine."""
    state: Path
    """The directory of everything the node keeps."""
    images: Path
    """The directory of images, which the nodes of one machine share."""
    hidden: tuple[Path, ...] = ()
    """What no container may see, the cluster's directory first: keys and tokens are in there."""
    listed: tuple[Path, ...] = ()
    """Where clusters are listed: what links in there lead to is no container's to see either."""
    address: str = "127.0.0.1"
    """Where the node is to be reached, and listens."""
    port: int = 0
    """The port it listens on; 0 means any free one."""
    labels: Mapping[str, str] = {}
    """Labels that the node gives itself."""
    exposed_labels: tuple[str, ...] = ()
    """Keys, or patterns of keys, of labels that its pods may know besides its zone and region."""
    host_image: bool = True
    """Whether pods may use the image `host`."""
    host_image_shown: tuple[Path, ...] = ()
    """Paths that the image `host` shows although it hides them by default."""
    image_map: tuple[str, ...] = ()
    """PATTERN=IMAGE: which image to take for names that match, the first match counting."""
    reserved: Mapping[str, Quantity] = {}
    """What is kept from pods."""
    plugins: Path | None = None
    """Where device plugins register; None for a directory of the node's own."""
    devices: Mapping[str, int] = {}
    """Devices to simulate: how many of which resource."""
    max_pods: int = MOST_PODS
    max_pids: int = MOST_PIDS
    """Processes and threads that one pod may have; -1 for as many as it likes."""
    metrics_resolution: int = RESOLUTION
    """Seconds between two reports of what the node and its pods use."""
    restart_reason: str = ""
    """How the previous agent process ended, if this one replaces it."""

    @property
    def pods(self) -> Path:
        """What belongs to single pods, by uid."""
        return self.state / "pods"

    @property
    def logs(self) -> Path:
        """What containers wrote, by pod and container."""
        return self.state / "logs"

    @property
    def runtime(self) -> Path:
        """What the supervisor keeps."""
        return self.state / "runtime"

    @property
    def usage(self) -> Path:
        """What pods have used, for a day."""
        return self.state / "usage"

    @property
    def own_plugins(self) -> Path:
        """Where device plugins register if no other directory is to be had."""
        return self.state / "kubelet" / "device-plugins"

    @property
    def pki(self) -> Path:
        """Who the node is: node.crt, node.key, ca.crt, and serving.crt if it had to ask for one."""
        return self.state / "pki"

    @property
    def cgroup(self) -> str:
        """Where the pods' control groups are, below the root of each hierarchy. Two users of one
        machine may have clusters of the same name, and each clears away what it does not know."""
        mark = hashlib.sha256(os.fsencode(self.state)).hexdigest()[:10]
        return f"/kedge/{self.cluster}-{self.name}-{mark}"
