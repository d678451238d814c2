"""RuntimeClasses: a pod that asks for another runtime than the one there is does not start."""

from typing import Final

import msgspec

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.view import sketches
from kedge.machinery.errors import StatusError
from kedge.node.runtime.runtime import RuntimeFailure

HANDLERS: Final = frozenset(("kedge",))
"""What a class may call the runtime of this node."""


class _Class(msgspec.Struct, frozen=True):
    handler: str = ""


_VIEW: Final = sketches(
    Resource(
        type=Document,
        group="node.k8s.io",
        plural="runtimeclasses",
        kind="RuntimeClass",
        namespaced=False,
    ),
    _Class,
)


class RuntimeClasses:
    """Reads classes through the API, with the node's own rights."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def check(self, pod: Pod) -> None:
        """Raises RuntimeFailure if the pod's class is not for this node's runtime, or is not."""
        name = pod.spec.runtimeClassName
        if not name:
            return
        try:
            handler = (await self._client.get_as(_VIEW, name)).handler
        except StatusError as error:
            raise RuntimeFailure(f'RuntimeClass "{name}": {error}') from error
        if handler not in HANDLERS:
            raise RuntimeFailure(f'no runtime for "{handler}" is configured')
