"""The configuration of a node agent, and the settings that it is made from."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from kedge.machinery.proxies import ProxyRules
from kedge.machinery.quantity import Quantity
from kedge.settings import cluster, values
from kedge.settings.device_access import DeviceAccessRule
from kedge.settings.registries import RegistryAuthority, RegistryMirror
from kedge.settings.service_defaults import LOAD_BALANCER_NETWORK
from kedge.settings.setting import Setting, declared

PLUGINS: Final = Path("/var/lib/kubelet/device-plugins")
"""Where Kubernetes has device plugins register, which they take for granted."""


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials with which a machine joins a cluster that runs elsewhere."""

    url: Annotated[
        str,
        Setting(
            "server",
            values.URLS,
            "URL of the API server, or of several, each used if the one before fails",
            default="the server that was joined, else where the cluster in --state was last seen",
        ),
    ]
    token: Annotated[str, Setting("token", values.TOKEN, "join the cluster with this token")]
    ca_hash: Annotated[
        str,
        Setting(
            "ca-cert-hash",
            values.DIGEST,
            "when joining, the digest of the public key of the cluster's authority",
        ),
    ] = ""
    ca_pem: Annotated[
        bytes,
        Setting(
            "ca-cert",
            values.FILE,
            "when joining, the certificate of the cluster's authority, instead of its digest",
        ),
    ] = b""
    """The content of that file."""


OWN_RUNTIME: Final = "kedge"
CRI_SCHEME: Final = "cri://"

REGISTRY_FIELDS: Final = (
    "registry_mirrors",
    "insecure_registries",
    "registry_authorities",
    "registry_credentials",
)
"""The fields of NodeConfig that say how registries are reached."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one node agent; its settings are the flags of `kedge node`."""

    cluster: Annotated[str, cluster.NAME]
    name: Annotated[
        str,
        Setting(
            "node-name",
            values.NODE_NAME,
            "name of the node in the cluster",
            default="the host name when joining, else the one node in --state, else node-1",
        ),
    ]
    state: Path
    """The directory of this node, below that of the cluster."""
    images: Path
    """The directory of images, which the nodes of one machine share."""
    listed: tuple[Path, ...] = ()
    """The directories that list clusters: containers do not see the targets of links in them."""
    address: Annotated[
        str,
        Setting("node-address", values.ADDRESS, "address at which nodes listen"),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Setting("node-port", values.PORT, "port at which a node listens, 0 for any free one"),
    ] = 0
    labels: Annotated[
        Mapping[str, str],
        Setting("node-labels", values.LABELS, "labels of the nodes"),
    ] = {}
    exposed_labels: Annotated[
        tuple[str, ...],
        Setting(
            "expose-node-labels",
            values.LABEL_PATTERNS,
            "labels of nodes that pods may read besides zone and region, such as"
            " example.com/rack or example.com/*",
        ),
    ] = ()
    image_map: Annotated[
        tuple[str, ...],
        Setting(
            "image-map",
            values.IMAGE_RULES,
            "which image to take for names that match, such as 'busybox:*=host'; may be repeated,"
            " the first match counts; the variable holds one rule",
        ),
    ] = ()
    registry_mirrors: Annotated[
        tuple[RegistryMirror, ...],
        Setting(
            "registry-mirror",
            values.REGISTRY_MIRRORS,
            "pull images of a registry from this mirror first, such as"
            " docker.io=https://mirror.example:5000, or *=URL for those of all; may be repeated,"
            " in the order of the attempts; the variable holds one mirror",
        ),
    ] = ()
    insecure_registries: Annotated[
        tuple[str, ...],
        Setting(
            "insecure-registry",
            values.REGISTRIES,
            "pull from this registry without verifying its certificate, or over plain HTTP; may be"
            " repeated, the variable holds one registry",
            default="none but localhost",
        ),
    ] = ()
    registry_authorities: Annotated[
        tuple[RegistryAuthority, ...],
        Setting(
            "registry-ca",
            values.REGISTRY_AUTHORITIES,
            "trust the certificates in this file for a registry or a mirror, such as"
            " registry.example:5000=/etc/ssl/registry.crt; may be repeated, the variable holds one",
        ),
    ] = ()
    registry_credentials: Annotated[
        Path | None,
        Setting(
            "registry-credentials",
            values.FILE,
            "docker's configuration file, such as ~/.docker/config.json, with whose credentials all"
            " pods may pull images",
            default="none: pods have their pull secrets",
        ),
    ] = None
    container_runtime: Annotated[
        str,
        Setting(
            "runtime",
            values.RUNTIME,
            "the runtime of containers: kedge's own, or cri:///PATH for the socket of containerd or"
            " another runtime of the Container Runtime Interface",
        ),
    ] = OWN_RUNTIME
    proxies: ProxyRules = ProxyRules()
    """The proxies to registries, from the environment: command lines are visible to all users."""
    hidden: Annotated[
        tuple[Path, ...],
        Setting(
            "hide",
            values.PATHS,
            "paths of the machine to hide in the image host, besides kedge's own"
            " directories and kubeconfigs; may be repeated, the variable holds one path",
        ),
    ] = ()
    """The directory of the cluster comes first."""
    host_image_shown: Annotated[
        tuple[Path, ...],
        Setting(
            "host-image-show",
            values.PATHS,
            "show this path in the image host, although it is among the credentials and"
            " home directories that 'kedge image list host' lists; may be repeated, the"
            " variable holds one path",
        ),
    ] = ()
    host_image: Annotated[
        bool,
        Setting("host-image", values.SWITCH, "whether pods may use the image host", default="yes"),
    ] = True
    plugins: Annotated[
        Path | None,
        Setting(
            "device-plugin-dir",
            values.DIRECTORY,
            "where device plugins register with the first node",
            default="for root /var/lib/kubelet/device-plugins if it is free, else a directory"
            " below --state",
        ),
    ] = None
    devices: Annotated[
        Mapping[str, int],
        Setting(
            "devices",
            values.DEVICES,
            "devices that each node simulates, such as example.com/gadget=4; may be repeated",
        ),
    ] = {}
    reserved: Annotated[
        Mapping[str, Quantity],
        Setting(
            "reserved",
            values.AMOUNTS,
            "resources that pods cannot use, such as cpu=100m,memory=256Mi",
            default="nothing",
        ),
    ] = {}
    max_pods: Annotated[int, Setting("max-pods", values.COUNT, "how many pods a node takes")] = 110
    max_pids: Annotated[
        int,
        Setting(
            "pod-max-pids",
            values.NUMBER,
            "processes and threads that one pod may have, -1 for any number",
        ),
    ] = 4096
    metrics_resolution: Annotated[
        int,
        Setting(
            "metrics-resolution",
            values.RESOLUTION,
            "how often nodes report the usage of themselves and their pods, from 10s on; more often"
            " while a client watches it",
        ),
    ] = 60
    dns: Annotated[str, cluster.DNS] = "cluster"
    device_access: Annotated[tuple[DeviceAccessRule, ...], cluster.DEVICE_ACCESS] = ()
    load_balancer_network: Annotated[str, cluster.LOAD_BALANCERS] = LOAD_BALANCER_NETWORK
    machine_address: Annotated[
        str,
        Setting(
            "machine-address",
            values.ADDRESS,
            "address at which nodes of other machines reach this machine, for packets of pods",
            default="--node-address if other machines can reach it, else the one that the server"
            " advertises",
        ),
    ] = ""
    node_network: Annotated[
        str,
        Setting(
            "node-network",
            values.NODE_NETWORK,
            "how pods of other machines are reached: by routes, which takes machines of one network"
            " segment, or through VXLAN tunnels; auto for routes where possible",
        ),
    ] = "auto"
    way_out: Annotated[
        str,
        Setting(
            "way-out",
            values.WAY_OUT,
            "how pods of an ordinary user reach other machines: by pasta or slirp4netns, or"
            " forwarded by the node agent; auto for the first of them that works",
        ),
    ] = "auto"
    testing: Annotated[bool, cluster.TESTING] = False
    restart_reason: str = ""
    """How the previous agent process ended, if this one replaces it."""

    @property
    def cri_socket(self) -> Path | None:
        """The socket of the container runtime; None for kedge's own."""
        if self.container_runtime == OWN_RUNTIME:
            return None
        return Path(self.container_runtime.removeprefix(CRI_SCHEME))

    @property
    def underlay_address(self) -> str:
        """The address of the machine for packets of pods; empty or a loopback address if nodes of
        other machines cannot reach it."""
        return self.machine_address or self.address

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
    def volumes(self) -> Path:
        """The data of local volumes, by handle. Only the node itself deletes them."""
        return self.state / "volumes"

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
        return self._cgroup_of(self.name, self.state)

    def sibling_cgroups(self) -> list[str]:
        """Return the cgroups that other nodes of the cluster have or would have on this machine,
        one for each directory beside the node's own."""
        beside = sorted(self.state.parent.iterdir())
        return [self._cgroup_of(each.name, each) for each in beside if each != self.state]

    def _cgroup_of(self, name: str, state: Path) -> str:
        suffix = hashlib.sha256(os.fsencode(state)).hexdigest()[:10]
        return f"/kedge/{self.cluster}-{name}-{suffix}"


def registry_flags(config: NodeConfig) -> tuple[str, ...]:
    """Return the flags that make a process reach registries as this node does."""
    given = ((name, getattr(config, name)) for name in REGISTRY_FIELDS)
    return tuple(
        flag
        for name, value in given
        if value
        for flag in declared(NodeConfig, name).arguments(value)
    )
