"""The types of the values of settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from kedge.metrics.windows import WINDOWS
from kedge.settings import parse
from kedge.settings.device_access import DeviceAccessRule, parse_device_access
from kedge.settings.node_range import NodeRange, parse_node_range
from kedge.settings.published_port import PublishedPort, parse_published_port
from kedge.settings.registries import (
    RegistryAuthority,
    RegistryMirror,
    parse_registry,
    parse_registry_authority,
    parse_registry_mirror,
)
from kedge.settings.setting import ValueType

USAGE_WINDOWS: Final = tuple(WINDOWS)
RESTART_POLICIES: Final = ("always", "never")
DNS_MODES: Final = ("cluster", "none")
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
TAINT_MODES: Final = ("auto", "on", "off")
NODE_NETWORKS: Final = ("auto", "routes", "vxlan")
WAYS_OUT: Final = ("auto", "pasta", "slirp4netns", "forwarder")

T = TypeVar("T")


def _joined(values: Sequence[str]) -> str:
    return ",".join(values)


def _pairs(values: Mapping[str, object]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _duration(seconds: float) -> str:
    """Write a duration in the largest unit that divides it."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{seconds:.9f}s"


def _port_range(ports: range) -> str:
    return f"{ports.start}-{ports.stop - 1}"


def _path_or_none(path: Path | None) -> str:
    return str(path or "")


def _union(values: Sequence[Mapping[str, T]]) -> dict[str, T]:
    return {name: value for each in values for name, value in each.items()}


def _pieces(values: Mapping[str, T]) -> list[dict[str, T]]:
    """Split a mapping into one for each flag: none at all if it is empty."""
    return [dict(values)] if values else []


def _choice(choices: tuple[str, ...], complaint: str) -> ValueType[Any]:
    return ValueType(parse.one_of(choices, complaint), choices=choices)


TEXT: Final[ValueType[str]] = ValueType(str)
ADDRESS: Final[ValueType[str]] = ValueType(str, "ADDRESS")
PORT: Final[ValueType[int]] = ValueType(parse.port_number, "PORT")
PORT_RANGE: Final[ValueType[range]] = ValueType(parse.port_range, "FROM-TO", _port_range)
NETWORK: Final[ValueType[str]] = ValueType(parse.network, "CIDR")
COUNT: Final[ValueType[int]] = ValueType(parse.count, "N")
SERVERS: Final[ValueType[int]] = ValueType(parse.servers, "N")
SIMULATED_NODES: Final[ValueType[int]] = ValueType(parse.simulated_nodes, "N")
NODE_RANGE: Final[ValueType[NodeRange]] = ValueType(parse_node_range, "K|MIN..MAX")
NUMBER: Final[ValueType[int]] = ValueType(parse.whole_number, "N")
LIST: Final[ValueType[tuple[str, ...]]] = ValueType(parse.items, "LIST", _joined)
LABEL_PATTERNS: Final = LIST._replace(parse=parse.label_patterns, metavar="KEY,...")
SWITCH: Final[ValueType[bool]] = ValueType(parse.truth, is_switch=True)
ON_OR_OFF: Final[ValueType[bool]] = ValueType(
    parse.on_or_off, "on|off", lambda value: "on" if value else "off"
)
SECONDS: Final[ValueType[float]] = ValueType(parse.seconds, "DURATION", _duration)
RESOLUTION: Final[ValueType[int]] = ValueType(parse.resolution_seconds, "DURATION", _duration)
DIRECTORY: Final[ValueType[Path]] = ValueType(parse.directory, "DIR", is_path=True)
FILE: Final[ValueType[Path | str]] = ValueType(parse.file, "FILE", _path_or_none, is_path=True)
PATHS: Final[ValueType[tuple[Path, ...]]] = ValueType(
    lambda text: Path(text).absolute(), "PATH", merge=tuple, is_path=True
)
CLUSTER_NAME: Final[ValueType[str]] = ValueType(parse.cluster_name, "NAME")
NODE_NAME: Final[ValueType[str]] = ValueType(parse.node_name, "NAME")
NODE_ADDRESSES: Final[ValueType[Mapping[str, str]]] = ValueType(
    parse.nodes, "NAME=ADDRESS,...", _pairs
)
LABELS: Final[ValueType[Mapping[str, str]]] = ValueType(parse.labels, "KEY=VALUE,...", _pairs)
AMOUNTS: Final[ValueType[Mapping[str, Any]]] = ValueType(parse.amounts, "NAME=AMOUNT,...", _pairs)
IMAGE_RULES: Final[ValueType[tuple[str, ...]]] = ValueType(
    parse.image_rule, "PATTERN=IMAGE", merge=tuple
)
REGISTRY: Final[ValueType[str]] = ValueType(
    lambda text: parse_registry(text) if text else "", "HOST:PORT"
)
REGISTRIES: Final[ValueType[tuple[str, ...]]] = ValueType(parse_registry, "HOST:PORT", merge=tuple)
REGISTRY_MIRRORS: Final[ValueType[tuple[RegistryMirror, ...]]] = ValueType(
    parse_registry_mirror, "REGISTRY=URL", merge=tuple
)
REGISTRY_AUTHORITIES: Final[ValueType[tuple[RegistryAuthority, ...]]] = ValueType(
    parse_registry_authority, "REGISTRY=FILE", merge=tuple
)
DEVICES: Final[ValueType[Mapping[str, int]]] = ValueType(
    parse.device_count, "NAME=N", _pairs, merge=_union, split=_pieces
)
DEVICE_ACCESS: Final[ValueType[tuple[DeviceAccessRule, ...]]] = ValueType(
    parse_device_access, "VARIABLE=RESOURCE.GROUP", merge=tuple
)
PUBLISHED_PORTS: Final[ValueType[tuple[PublishedPort, ...]]] = ValueType(
    parse_published_port, "[ADDRESS:]PORT:80|443", merge=tuple
)
RUNTIME: Final[ValueType[str]] = ValueType(parse.container_runtime, "kedge|cri:///PATH")
URLS: Final[ValueType[str]] = ValueType(parse.server_urls, "URL,...")
TOKEN: Final[ValueType[str]] = ValueType(parse.bootstrap_token, "ID.SECRET")
DIGEST: Final[ValueType[str]] = ValueType(parse.key_digest, "sha256:HEX")
STORE: Final[ValueType[str]] = ValueType(
    parse.store,
    f"{'|'.join(parse.LOCAL_STORES)}|{parse.ETCD}HOST:PORT,...|{parse.POSTGRESQL_FORM}",
    suggested=(*parse.LOCAL_STORES, parse.ETCD, parse.POSTGRESQL),
)
RESTART_POLICY: Final = _choice(
    RESTART_POLICIES, f"not a policy: choose {' or '.join(RESTART_POLICIES)}"
)
REVIEW_VERSION: Final = _choice(REVIEW_VERSIONS, f"none of {', '.join(REVIEW_VERSIONS)}")
DNS_MODE: Final = _choice(DNS_MODES, f"not a mode: choose {' or '.join(DNS_MODES)}")
TAINT_MODE: Final = _choice(TAINT_MODES, f"none of {', '.join(TAINT_MODES)}")
NODE_NETWORK: Final = _choice(NODE_NETWORKS, f"none of {', '.join(NODE_NETWORKS)}")
WAY_OUT: Final = _choice(WAYS_OUT, f"none of {', '.join(WAYS_OUT)}")
USAGE_WINDOW: Final = _choice(USAGE_WINDOWS, f"none of {', '.join(USAGE_WINDOWS)}")
