"""DefaultTolerationSeconds: a pod outlasts a troubled node for five minutes unless it says more."""

from msgspec.structs import replace

from kedge.api.core_v1.pod.affinity import Toleration
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin

SECONDS = 300
DEFAULTS = tuple(
    Toleration(key=key, operator="Exists", effect="NoExecute", tolerationSeconds=SECONDS)
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)


class DefaultTolerationSeconds(MutatingPlugin):
    """Lets a pod tolerate a node that is not ready or unreachable for 300 s by default."""

    name = "DefaultTolerationSeconds"

    async def mutate(self, attempt: Attempt) -> Object | None:
        pod = attempt.object
        if not isinstance(pod, Pod) or attempt.request.subresource:
            return pod
        return tolerant(pod)


def tolerant(pod: Pod) -> Pod:
    """The pod with the tolerations that it lacks."""
    own = pod.spec.tolerations
    lacking = [each for each in DEFAULTS if not any(_speaks_of(each.key, own_) for own_ in own)]
    if not lacking:
        return pod
    return replace(pod, spec=replace(pod.spec, tolerations=[*own, *lacking]))


def _speaks_of(taint: str, toleration: Toleration) -> bool:
    return toleration.key in ("", taint) and toleration.effect in ("", "NoExecute")
