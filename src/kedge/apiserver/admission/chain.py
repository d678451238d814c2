"""The chain of admission plugins: an ordered list; each may change, then each may refuse."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from kedge.api.model import Object
from kedge.apiserver.request import Request

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class Attempt(msgspec.Struct, frozen=True):
    """A write that wants to happen."""

    request: Request
    operation: Operation
    object: Object | None
    """The object as it would be stored; None when it is deleted."""
    old: Object | None = None
    weight: int = 0
    """About how many bytes both objects have: what is made of large ones is made in threads."""
    is_repeated: bool = False
    """Whether plugins have changed the object before, and a webhook has since."""


class AdmissionPlugin(Protocol):
    """One rule of the cluster."""

    name: str

    async def mutate(self, attempt: Attempt) -> Object | None:
        """The object, changed or as it is."""
        ...

    async def validate(self, attempt: Attempt) -> None:
        """Raise a StatusError to refuse."""
        ...


@runtime_checkable
class Holding(Protocol):
    """A plugin that holds something for a write from its admission until it is over."""

    def release(self, request: Request) -> None:
        """The write is over, one way or the other."""
        ...


class Chain:
    """The plugins that are on, in order."""

    def __init__(self, plugins: Sequence[AdmissionPlugin]) -> None:
        self.plugins = tuple(plugins)
        self._holding = [plugin for plugin in plugins if isinstance(plugin, Holding)]

    async def mutate(self, attempt: Attempt) -> Object | None:
        for plugin in self.plugins:
            changed = await plugin.mutate(attempt)
            if changed is not attempt.object:
                attempt = msgspec.structs.replace(attempt, object=changed)
        return attempt.object

    async def validate(self, attempt: Attempt) -> None:
        for plugin in self.plugins:
            await plugin.validate(attempt)

    def release(self, request: Request) -> None:
        """Tell those who hold something for the request that it is over."""
        for plugin in self._holding:
            plugin.release(request)
