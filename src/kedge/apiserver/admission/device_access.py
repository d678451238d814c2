"""DeviceAccess: refuses pods whose service account may not use the objects that variables name.

Only values that the pod itself contains are known here. Nodes check all values again when a
container starts, because config maps and secrets can change after the pod was admitted.
"""

from collections.abc import Iterator, Sequence

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.authentication.service_accounts import groups_of, user_name
from kedge.apiserver.authorization.attributes import Attributes
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.request import User
from kedge.settings.device_access import VERB, DeviceAccessRule, UsedObject, used_objects

DEFAULT_ACCOUNT = "default"


class DeviceAccess(ValidatingPlugin):
    """Checks the variables of containers with devices against the rights of the pod's service
    account."""

    name = "DeviceAccess"

    def __init__(self, authorizer: Authorizer, rules: Sequence[DeviceAccessRule]) -> None:
        self._authorizer = authorizer
        self._rules = rules

    async def validate(self, attempt: Attempt) -> None:
        pod = attempt.object
        if not isinstance(pod, Pod) or attempt.operation != "CREATE" or attempt.request.subresource:
            return
        namespace = attempt.request.namespace
        account = pod.spec.serviceAccountName or DEFAULT_ACCOUNT
        user = User(user_name(namespace, account), groups=groups_of(namespace))
        for used in self._used(pod):
            if not self._authorizer.decide(_attributes(user, namespace, used)).allowed:
                raise refused(attempt, used.refusal)

    def _used(self, pod: Pod) -> Iterator[UsedObject]:
        for container in (*pod.spec.containers, *pod.spec.initContainers):
            if _has_devices(container):
                yield from used_objects(self._rules, _literals(container))


def _has_devices(container: Container) -> bool:
    """Whether a container requests anything that may be a device: a claim, or a resource with a
    domain."""
    resources = container.resources
    return bool(resources.claims) or any("/" in name for name in resources.limits)


def _literals(container: Container) -> dict[str, str]:
    """Return the values that the pod contains; a reference is expanded only when it starts."""
    return {
        each.name: each.value
        for each in container.env
        if each.valueFrom is None and each.value and "$(" not in each.value
    }


def _attributes(user: User, namespace: str, used: UsedObject) -> Attributes:
    return Attributes(
        user=user,
        verb=VERB,
        group=used.rule.group,
        version="*",
        plural=used.rule.plural,
        namespace=namespace,
        name=used.name,
    )
