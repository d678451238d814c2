"""NodeDeclaredFeatureValidator: a pod is not changed in ways that its node does not know."""

from collections.abc import Iterator

from kedge.api.core_v1.node import RESOURCE
from kedge.api.core_v1.node_types import INIT_CONTAINER_RESIZE, POD_LEVEL_RESIZE
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.resources import is_sidecar
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.watchcache import ResourceCache


class NodeDeclaredFeatureValidator(ValidatingPlugin):
    """Refuses updates of bound pods that need features which their node does not declare."""

    name = "NodeDeclaredFeatureValidator"

    def __init__(self, nodes: ResourceCache) -> None:
        self._nodes = nodes

    async def validate(self, attempt: Attempt) -> None:
        new, old = attempt.object, attempt.old
        if attempt.operation != "UPDATE" or attempt.request.subresource not in ("", "resize"):
            return
        if not isinstance(new, Pod) or not isinstance(old, Pod):
            return
        needed = sorted(needed_features(new.spec, old.spec)) if new.spec.nodeName else []
        if needed:
            self._check(attempt, new.spec.nodeName, needed)

    def _check(self, attempt: Attempt, name: str, needed: list[str]) -> None:
        item = self._nodes.get(RESOURCE.key("", name))
        if item is None:
            raise refused(attempt, f'node "{name}" not found')
        declared = RESOURCE.decode(item.body).status.declaredFeatures
        if lacking := [feature for feature in needed if feature not in declared]:
            features = ", ".join(lacking)
            why = (
                f'pod update requires features {features} which are not available on node "{name}"'
            )
            raise refused(attempt, why)


def needed_features(new: PodSpec, old: PodSpec) -> Iterator[str]:
    """Yield the features that a node needs to apply a change of a pod."""
    if new.resources != old.resources:
        yield POD_LEVEL_RESIZE
    for before, after in zip(old.initContainers, new.initContainers, strict=False):
        if not is_sidecar(before) and before.resources != after.resources:
            yield INIT_CONTAINER_RESIZE
            return
