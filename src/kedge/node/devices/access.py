"""DeviceAccessReview: asks the API server whether a pod may use what its variables name."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import Pod
from kedge.client.client import Client
from kedge.client.transport import Unreachable
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import ConfigFailure
from kedge.settings.device_access import VERB, DeviceAccessRule, UsedObject, used_objects

REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class DeviceAccessReview:
    """Fulfils dependencies.DeviceAccessCheck."""

    def __init__(self, client: Client, rules: Sequence[DeviceAccessRule]) -> None:
        self._client = client
        self._rules = rules

    async def check(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        resources = container.resources
        if not (resources.claims or any("/" in name for name in resources.limits)):
            return
        for used in used_objects(self._rules, env):
            if not await self._allowed(review_of(pod, used)):
                raise ConfigFailure(used.refusal)

    async def _allowed(self, review: Mapping[str, Any]) -> bool:
        try:
            reply = await self._client.send("POST", REVIEWS, body=msgspec.json.encode(review))
            status = msgspec.json.decode(reply.body).get("status")
        except (StatusError, Unreachable, msgspec.DecodeError) as error:
            raise ConfigFailure(f"cannot check the access to devices: {error}") from error
        return isinstance(status, dict) and status.get("allowed") is True


def review_of(pod: Pod, used: UsedObject) -> dict[str, Any]:
    """Return the SubjectAccessReview for the pod's service account and an object."""
    namespace = pod.metadata.namespace
    account = pod.spec.serviceAccountName or "default"
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": {
                "namespace": namespace,
                "verb": VERB,
                "group": used.rule.group,
                "version": "*",
                "resource": used.rule.plural,
                "name": used.name,
            },
        },
    }
