"""PodResizeValidator: a pod may not be resized to more than its node has."""

from collections.abc import Iterator
from typing import Final

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import Node
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import pod_requests
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.watchcache import ResourceCache
from kedge.machinery.errors import StatusCause, StatusError, forbidden
from kedge.machinery.quantity import Quantity

_SYSTEM: Final = "kubernetes.io/os"
_NOTHING: Final = Quantity(0)


class PodResizeValidator(ValidatingPlugin):
    """Refuses resizes of pods beyond the allocatable CPU and memory of their node."""

    name = "PodResizeValidator"

    def __init__(self, nodes: ResourceCache) -> None:
        self._nodes = nodes

    async def validate(self, attempt: Attempt) -> None:
        new, old = attempt.object, attempt.old
        if attempt.request.subresource != "resize" or attempt.operation != "UPDATE":
            return
        if not isinstance(new, Pod) or not isinstance(old, Pod) or new.spec == old.spec:
            return
        if name := new.spec.nodeName:
            self._check(attempt, new, name)

    def _check(self, attempt: Attempt, pod: Pod, name: str) -> None:
        item = self._nodes.get(RESOURCE.key("", name))
        if item is None:
            raise refused(attempt, f'node "{name}" not found')
        node = RESOURCE.decode(item.body)
        system = node.metadata.labels.get(_SYSTEM, "linux")
        if system != "linux":
            why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            raise _refused(pod, why, "UnsupportedPlatform")
        if lacking := "; ".join(_lacking(pod, node)):
            why = f"node didn't have enough allocatable resources: {lacking}"
            raise _refused(pod, why, "NodeCapacity")


def _refused(pod: Pod, why: str, reason: str) -> StatusError:
    return forbidden("", "pods", pod.metadata.name, why, [StatusCause(reason)])


def _lacking(pod: Pod, node: Node) -> Iterator[str]:
    """Yield the resources that the pod wants more of than the node has."""
    requests, allocatable = pod_requests(pod.spec), node.status.allocatable
    cpu, has_cpu = requests.get("cpu", _NOTHING), allocatable.get("cpu", _NOTHING)
    if cpu > has_cpu:
        yield f"cpu, requested: {cpu.milli()}, allocatable: {has_cpu.milli()}"
    memory, has_memory = requests.get("memory", _NOTHING), allocatable.get("memory", _NOTHING)
    if memory > has_memory:
        yield f"memory, requested: {memory.value()}, allocatable: {has_memory.value()}"
