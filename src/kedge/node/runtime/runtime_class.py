"""RuntimeClasses: rejects pods that request a runtime which the node does not have."""

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
"""The handlers of this node's runtime."""


class _RuntimeClassHandler(msgspec.Struct, frozen=True):
    handler: str = ""


_VIEW: Final = sketches(
    Resource(
        type=Document,
        group="node.k8s.io",
        plural="runtimeclasses",
        kind="RuntimeClass",
        namespaced=False,
    ),
    _RuntimeClassHandler,
)


class RuntimeClassChecker:
    """Reads RuntimeClasses through the API, with the rights of the node."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def check(self, pod: Pod) -> None:
        """Raise RuntimeFailure if the pod's RuntimeClass does not exist or has another handler."""
        name = pod.spec.runtimeClassName
        if not name:
            return
        try:
            handler = (await self._client.get_as(_VIEW, name)).handler
        except StatusError as error:
            raise RuntimeFailure(f'RuntimeClass "{name}": {error}') from error
        if handler not in HANDLERS:
            raise RuntimeFailure(f'no runtime for "{handler}" is configured')
