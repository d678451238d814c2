"""Labels and annotations of sandboxes and containers, by which a restarted agent knows them."""

import hashlib
from collections.abc import Mapping

import msgspec

from kedge.api.core_v1.pod.container import Container, ResourceRequirements
from kedge.api.core_v1.pod.pod import Pod
from kedge.machinery.quantity import Quantity
from kedge.node.runtime import runtime

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
HASH = "io.kubernetes.container.hash"
GRACE = "io.kubernetes.pod.terminationGracePeriod"
MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
RESOURCES = "kedge.io/resources"
"""The resources at the start of the container, as JSON."""
IMAGE = "kedge.io/image"
"""The full name of its image."""
IMAGE_ID = "kedge.io/image-id"
"""Its image with the digest."""


def spec_hash(container: Container) -> str:
    """Return a hash of the fields whose change restarts a container: only its image can change."""
    return hashlib.sha256(f"{container.name}\0{container.image}".encode()).hexdigest()[:16]


def pod_labels(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    own = {POD_NAME: meta.name, POD_NAMESPACE: meta.namespace, POD_UID: meta.uid}
    return {**meta.labels, **own}


def container_labels(pod: Pod, container: Container) -> dict[str, str]:
    meta = pod.metadata
    return {
        POD_NAME: meta.name,
        POD_NAMESPACE: meta.namespace,
        POD_UID: meta.uid,
        CONTAINER_NAME: container.name,
    }


def container_annotations(
    pod: Pod, container: Container, image_name: str, image_id: str
) -> dict[str, str]:
    annotations = {
        HASH: spec_hash(container),
        MESSAGE_PATH: container.terminationMessagePath,
        MESSAGE_POLICY: container.terminationMessagePolicy,
        RESOURCES: to_text(container.resources),
        IMAGE: image_name,
        IMAGE_ID: image_id,
    }
    if pod.spec.terminationGracePeriodSeconds is not None:
        annotations[GRACE] = str(pod.spec.terminationGracePeriodSeconds)
    return annotations


def changed(container: Container, record: runtime.RuntimeContainer) -> bool:
    """Return whether the spec of a container has changed since it was created."""
    return record.annotations.get(HASH, "") != spec_hash(container)


def started_with(record: runtime.RuntimeContainer) -> ResourceRequirements | None:
    """Return the resources at the start of a container; None without the annotation."""
    text = record.annotations.get(RESOURCES)
    return None if text is None else from_text(text)


def to_text(resources: ResourceRequirements) -> str:
    parts = {"limits": _texts(resources.limits), "requests": _texts(resources.requests)}
    return msgspec.json.encode(parts).decode()


def from_text(text: str) -> ResourceRequirements:
    parts = msgspec.json.decode(text, type=dict[str, dict[str, str]])
    return ResourceRequirements(
        limits=_amounts(parts.get("limits", {})), requests=_amounts(parts.get("requests", {}))
    )


def _texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _amounts(texts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in texts.items()}
