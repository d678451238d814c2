"""The Secrets with which a pod's images are pulled."""

from collections.abc import Sequence

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.machinery.errors import StatusError
from kedge.node.pod.referenced_objects import ReferencedObjects


class PullSecrets:
    """Reads imagePullSecrets. Fulfils dependencies.PullSecretReader."""

    def __init__(self, sources: ReferencedObjects) -> None:
        self._sources = sources

    async def of(self, pod: Pod) -> Sequence[Secret]:
        found = []
        for reference in pod.spec.imagePullSecrets:
            try:
                secret = await self._sources.secret(pod.metadata.namespace, reference.name)
            except StatusError:
                # A secret that the node may not read counts as missing; the pull then reports the
                # failure.
                continue
            if secret is not None:
                found.append(secret)
        return found
