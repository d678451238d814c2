"""Fields that are stored and have no effect, and the warning that each draws when it is written.

This table is the only place that names them. A test walks all fields of all built-in kinds: each is
read by code, is for programs outside of kedge, or is listed here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

MOST_WARNINGS: Final = 20
"""Warnings for one object. A list may have thousands of items."""

_IN_TREE: Final = (
    "nodes do not mount volumes of this type, and pods wait with the event FailedMount"
)
UNSUPPORTED_VOLUMES: Final = (
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)
"""Volume types of Kubernetes that need a driver outside of kedge."""
_VOLUMES: Final = dict.fromkeys(UNSUPPORTED_VOLUMES, _IN_TREE)
_LINUX: Final = "nodes run Linux"
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_POD_FIELDS: Final = {
    **{f"volumes[].{name}": _IN_TREE for name in (*UNSUPPORTED_VOLUMES, "gitRepo")},
    "securityContext.seLinuxChangePolicy": "volumes are mounted without an SELinux context",
    "securityContext.windowsOptions": _LINUX,
    **{f"{each}[].securityContext.windowsOptions": _LINUX for each in _CONTAINERS},
}
"""Fields of a pod spec, with the reason."""

_POD_SPECS: Final = {
    "Pod": "spec",
    "PodTemplate": "template.spec",
    "ReplicationController": "spec.template.spec",
    "ReplicaSet": "spec.template.spec",
    "Deployment": "spec.template.spec",
    "StatefulSet": "spec.template.spec",
    "DaemonSet": "spec.template.spec",
    "Job": "spec.template.spec",
    "CronJob": "spec.jobTemplate.spec.template.spec",
}
"""The place of the pod spec, by kind."""

_SINGLE: Final[Mapping[str, Mapping[str, str]]] = {
    "CSIDriver": {
        "spec.seLinuxMount": "volumes are mounted without an SELinux context",
        "spec.preventPodSchedulingIfMissing": (
            "pods are scheduled whether a node has the driver or not"
        ),
    },
    "PersistentVolume": {
        **{f"spec.{name}": why for name, why in _VOLUMES.items()},
        "spec.local.fsType": (
            "a local volume is a directory or a raw device: nodes mount no file system for it"
        ),
    },
    "IngressClass": {"spec.parameters": "the gateway has no parameters"},
}

_GATEWAY: Final = "kedge.dev/gateway"


def _is_of_gateway(document: Mapping[str, Any]) -> bool:
    spec = document.get("spec")
    return isinstance(spec, dict) and spec.get("controller") == _GATEWAY


_ONLY_IF: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "IngressClass": _is_of_gateway,
}
"""Which objects of a kind the fields have no effect in; in others, programs outside of kedge read
them."""


def ineffective_fields(kind: str) -> dict[str, str]:
    """Return the paths of a kind's fields without effect, each with the reason."""
    found = dict(_SINGLE.get(kind, {}))
    if (place := _POD_SPECS.get(kind)) is not None:
        found |= {f"{place}.{path}": why for path, why in _POD_FIELDS.items()}
    return found


class _Step(dict[str, "_Step"]):
    """The next steps of paths, by name; `why` where a path ends."""

    why: str = ""


def _steps(kind: str) -> _Step:
    root = _Step()
    for path, why in ineffective_fields(kind).items():
        step = root
        for name in path.split("."):
            step = step.setdefault(name, _Step())
        step.why = why
    return root


_TREES: Final = {kind: _steps(kind) for kind in {*_POD_SPECS, *_SINGLE}}


def warnings_of(kind: str, document: Mapping[str, Any]) -> Sequence[str]:
    """Return the warnings about fields without effect that a document sets."""
    tree = _TREES.get(kind)
    if tree is None or (kind in _ONLY_IF and not _ONLY_IF[kind](document)):
        return ()
    return [text for _, text in zip(range(MOST_WARNINGS), _found(tree, document, ""), strict=False)]


def _found(step: _Step, value: Any, path: str) -> Iterator[str]:
    for name, inner in step.items():
        key = name.removesuffix("[]")
        given = value.get(key) if isinstance(value, dict) else None
        if not given:
            continue
        at = f"{path}.{key}" if path else key
        if inner.why:
            yield f"{at}: has no effect in kedge: {inner.why}"
        elif name.endswith("[]") and isinstance(given, list):
            for i, each in enumerate(given):
                yield from _found(inner, each, f"{at}[{i}]")
        else:
            yield from _found(inner, given, at)
