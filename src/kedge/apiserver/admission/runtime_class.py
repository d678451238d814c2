"""RuntimeClass: a pod that names a class gets its overhead and goes where the class can run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.pod.affinity import Toleration
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.model import Object
from kedge.api.resource import dec_hook
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.watchcache import ResourceCache
from kedge.machinery.quantity import Quantity

_OTHER_OVERHEAD: Final = (
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
)
_OWN_OVERHEAD: Final = (
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
)


class _Overhead(msgspec.Struct, rename="camel"):
    pod_fixed: Mapping[str, Quantity] = {}


class _Scheduling(msgspec.Struct, rename="camel"):
    node_selector: Mapping[str, str] = {}
    tolerations: Sequence[Toleration] = ()


class _Class(msgspec.Struct):
    """Of a RuntimeClass, what pods take over."""

    overhead: _Overhead | None = None
    scheduling: _Scheduling | None = None


_DECODER: Final = msgspec.json.Decoder(_Class, dec_hook=dec_hook)
_NO_CLASS: Final = _Class()


class RuntimeClass:
    """Requires that the RuntimeClass of a pod exists, and adds its overhead, node selector and
    tolerations."""

    name = "RuntimeClass"

    def __init__(self, classes: ResourceCache) -> None:
        self._classes = classes

    async def mutate(self, attempt: Attempt) -> Object | None:
        pod = attempt.object
        if not _is_new_pod(attempt) or not isinstance(pod, Pod):
            return pod
        if pod.spec.runtimeClassName is None:
            return pod
        found = self._class(attempt, pod.spec)
        spec = pod.spec
        if found.scheduling is not None:
            spec = _scheduled(attempt, spec, found.scheduling)
        if found.overhead is not None:
            if spec.overhead and spec.overhead != found.overhead.pod_fixed:
                raise refused(attempt, _OTHER_OVERHEAD)
            spec = replace(spec, overhead=found.overhead.pod_fixed)
        return replace(pod, spec=spec)

    async def validate(self, attempt: Attempt) -> None:
        pod = attempt.object
        if not _is_new_pod(attempt) or not isinstance(pod, Pod):
            return
        overhead = self._class(attempt, pod.spec).overhead
        if overhead is None and pod.spec.overhead:
            raise refused(attempt, _OWN_OVERHEAD)
        if overhead is not None and pod.spec.overhead != overhead.pod_fixed:
            raise refused(attempt, _OTHER_OVERHEAD)

    def _class(self, attempt: Attempt, spec: PodSpec) -> _Class:
        name = spec.runtimeClassName
        if name is None:
            return _NO_CLASS
        item = self._classes.get(self._classes.resource.key("", name))
        if item is None:
            raise refused(attempt, f'pod rejected: RuntimeClass "{name}" not found')
        return _DECODER.decode(item.body)


def _scheduled(attempt: Attempt, spec: PodSpec, scheduling: _Scheduling) -> PodSpec:
    """The spec of a pod that only goes to the nodes of its class."""
    for key, value in scheduling.node_selector.items():
        own = spec.nodeSelector.get(key, value)
        if own != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {own}"
            )
            raise refused(attempt, why)
    selector = {**spec.nodeSelector, **scheduling.node_selector}
    tolerations = widest([*spec.tolerations, *scheduling.tolerations])
    return replace(spec, nodeSelector=selector, tolerations=tolerations)


def _is_new_pod(attempt: Attempt) -> bool:
    return attempt.operation == "CREATE" and not attempt.request.subresource


def widest(tolerations: Iterable[Toleration]) -> list[Toleration]:
    """Those that tolerate something which none of the others does."""
    distinct: list[Toleration] = []
    for each in tolerations:
        if each not in distinct:
            distinct.append(each)
    return [
        each
        for each in distinct
        if not any(covers(other, each) for other in distinct if other is not each)
    ]


def covers(wide: Toleration, narrow: Toleration) -> bool:
    """Whether one toleration tolerates all that another does, and for as long."""
    any_key = wide.key == "" and wide.operator == "Exists"
    if not any_key and wide.key != narrow.key:
        return False
    if wide.effect not in ("", narrow.effect):
        return False
    if wide.effect == "NoExecute" and wide.tolerationSeconds is not None:
        seconds = narrow.tolerationSeconds
        if seconds is None or seconds > wide.tolerationSeconds:
            return False
    if wide.operator in ("", "Equal"):
        return narrow.operator == "Equal" and wide.value == narrow.value
    return wide.operator == "Exists"
