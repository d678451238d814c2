"""NodeShortfalls: warns the author of an object that nodes of this cluster do not carry out."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kedge.api.builtin.policy_limits import ENFORCED, ENFORCEMENT_ANNOTATION
from kedge.api.builtin.resources import NETWORKING
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.limits.workloads import template_of
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.watchcache import ResourceCache

_NAMED: Final = 3
"""Nodes that a warning names."""
_LEVEL: Final = "kedge.dev/level"
_PLAIN: Final = "plain"
"""The level of nodes that may not mount, as in most containers."""
_HOST: Final = "host"
"""The image of the machine's own files, in which a volume is a link."""
_USERS: Final = "user namespaces"
_MOUNTS: Final = "mounts"
_OF_OBJECTS: Final = ("configMap", "secret", "projected", "downwardAPI", "image")
"""Volumes that are read-only or follow objects."""


class NodeShortfalls(ValidatingPlugin):
    """A member of the admission chain that is always on, and only warns."""

    name = "NodeShortfalls"

    def __init__(self, nodes: ResourceCache) -> None:
        self._nodes = nodes

    async def validate(self, attempt: Attempt) -> None:
        request = attempt.request
        resource = request.resource
        if attempt.operation not in ("CREATE", "UPDATE") or request.subresource:
            return
        if (resource.group, resource.plural) == (NETWORKING, "networkpolicies"):
            request.warnings += policy_warnings([each.document() for each in self._nodes.values()])
        elif attempt.object is not None and (spec := _written_spec(attempt)) is not None:
            request.warnings += pod_warnings(spec, self._documents())

    def _documents(self) -> Iterator[dict[str, Any]]:
        return (each.document() for each in self._nodes.values())


def _written_spec(attempt: Attempt) -> PodSpec | None:
    """Return the pod spec that the author of an object wrote; a controller reads no warnings."""
    obj = attempt.object
    if obj is None or obj.metadata.ownerReferences:
        return None
    if isinstance(obj, Pod):
        return obj.spec if attempt.operation == "CREATE" else None
    template = template_of(obj)
    return None if template is None else template.spec.spec


def policy_warnings(nodes: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a warning if nodes say that they do not enforce policies; others do not tell."""
    lacking = [each["metadata"]["name"] for each in nodes if _is_lax(each["metadata"])]
    if not lacking:
        return
    names = ", ".join(lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
    yield (
        f"{len(lacking)} of {len(nodes)} nodes do not enforce NetworkPolicies, so that no"
        f" packet of their pods is dropped: {names}"
    )


def _is_lax(meta: dict[str, Any]) -> bool:
    told = (meta.get("annotations") or {}).get(ENFORCEMENT_ANNOTATION, ENFORCED)
    return bool(told != ENFORCED)


def pod_warnings(spec: PodSpec, nodes: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield a warning for each part of a pod that no node can start. The nodes are looked at only
    if the pod has such a part, and up to the first one that can."""
    volumes = shared_volumes(spec)
    lacking = {_USERS} if spec.hostUsers is False else set()
    lacking |= {_MOUNTS} if volumes else set()
    has_nodes = False
    for each in nodes if lacking else ():
        has_nodes = True
        lacking -= _offers(each)
        if not lacking:
            return
    if has_nodes and _USERS in lacking:
        yield (
            "spec.hostUsers: no node supports user namespaces of pods, so the pod waits; its event"
            " FailedCreatePodSandBox gives the reason of the node"
        )
    if has_nodes and _MOUNTS in lacking:
        for container, volume in volumes:
            yield (
                f'container "{container}": on nodes of the level plain, containers of other images'
                f' than "{_HOST}" do not start with the volume "{volume}", which is written to and'
                " kept or shared: grant CAP_SYS_ADMIN to the node, or mount it read-only"
            )


def shared_volumes(spec: PodSpec) -> list[tuple[str, str]]:
    """Return the containers and volumes of mounts that have to be in two places at once: those that
    are written to, but for an emptyDir of one container."""
    containers = (*spec.initContainers, *spec.containers)
    mounts = [each.name for one in containers for each in one.volumeMounts]
    # Volumes of a StatefulSet's claim templates are not among those of the template.
    kept = {*mounts} - {
        each.name
        for each in spec.volumes
        if any(getattr(each, kind) for kind in _OF_OBJECTS)
        or (each.emptyDir is not None and mounts.count(each.name) == 1)
    }
    return [
        (one.name, each.name)
        for one in containers
        if one.image != _HOST
        for each in one.volumeMounts
        if each.name in kept and not each.readOnly
    ]


def _offers(node: dict[str, Any]) -> set[str]:
    """Return what a node has for pods; one that does not tell has everything."""
    handlers: list[dict[str, Any]] = (node.get("status") or {}).get("runtimeHandlers") or [{}]
    has_users = any((each.get("features") or {}).get("userNamespaces", True) for each in handlers)
    has_mounts = (node["metadata"].get("labels") or {}).get(_LEVEL) != _PLAIN
    users, mounts = {_USERS} if has_users else set(), {_MOUNTS} if has_mounts else set()
    return users | mounts
