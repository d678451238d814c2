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


class ValidatingPlugin:
    """A plugin that changes nothing. The chain does not ask it to: most plugins concern few kinds,
    and thirty questions without an answer take a twentieth of the time of a write."""

    async def mutate(self, attempt: Attempt) -> Object | None:
        return attempt.object


class MutatingPlugin:
    """A plugin that refuses nothing, or only while it changes objects."""

    async def validate(self, attempt: Attempt) -> None:
        return None


@runtime_checkable
class Holding(AdmissionPlugin, Protocol):
    """A plugin that holds something for a write from its admission until it is over."""

    def holds(self, request: Request) -> bool:
        """Whether it holds anything for the write."""
        ...

    def release(self, request: Request) -> None:
        """The write is over, one way or the other."""
        ...


class Chain:
    """The plugins that are on, in order."""

    def __init__(self, plugins: Sequence[AdmissionPlugin]) -> None:
        self.plugins = tuple(plugins)
        self._mutate = tuple(
            each.mutate for each in plugins if not _inherits(each, ValidatingPlugin, "mutate")
        )
        self._validate = tuple(
            each.validate for each in plugins if not _inherits(each, MutatingPlugin, "validate")
        )
        self._holding = [plugin for plugin in plugins if isinstance(plugin, Holding)]

    async def mutate(self, attempt: Attempt) -> Object | None:
        for mutate in self._mutate:
            changed = await mutate(attempt)
            if changed is not attempt.object:
                attempt = msgspec.structs.replace(attempt, object=changed)
        return attempt.object

    async def validate(self, attempt: Attempt) -> None:
        for validate in self._validate:
            await validate(attempt)

    @property
    def counting_nothing(self) -> list[str]:
        """The names of the plugins that `count` leaves out."""
        return [plugin.name for plugin in self.plugins if plugin not in self._holding]

    async def count(self, attempt: Attempt) -> None:
        """Ask only the plugins that hold something for each write, such as the quota."""
        for plugin in self._holding:
            await plugin.validate(attempt)

    def holds(self, request: Request) -> bool:
        """Whether a plugin holds anything for the request."""
        return any(plugin.holds(request) for plugin in self._holding)

    def release(self, request: Request) -> None:
        """Tell those who hold something for the request that it is over."""
        for plugin in self._holding:
            plugin.release(request)


def _inherits(plugin: AdmissionPlugin, base: type, name: str) -> bool:
    """Whether the method of a plugin is the one of the base class, which does nothing."""
    return getattr(type(plugin), name, None) is getattr(base, name)
