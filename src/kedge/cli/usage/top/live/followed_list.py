"""FollowedList: the objects of a resource as they are now, listed once and then watched."""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar

from kedge.api.resource import Resource
from kedge.client.client import Client
from kedge.client.transport import Unreachable
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

F = TypeVar("F")

RETRY_SECONDS: Final = 1.0
"""Between two attempts to reach a server that does not answer."""
POLL_SECONDS: Final = 10.0
"""Between two lists where watches are refused."""
REFUSED_SECONDS: Final = 30.0
"""Between two attempts to read objects that the user may not read: rights change."""


class ListScope(NamedTuple):
    """Which objects are followed."""

    resource: Resource[Any]
    namespace: str = ""
    labels: str = ""


class FollowedList(Generic[F]):
    """Keeps a part of each object, by NAME or NAMESPACE/NAME."""

    def __init__(
        self,
        client: Client,
        scope: ListScope,
        keep: Callable[[Any], F],
        *,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._scope = scope
        self._keep = keep
        self._clock = clock
        self._changed = changed
        self._version = ""
        """Where a watch continues; empty if everything is to be listed."""
        self.found: dict[str, F] = {}
        self.is_ready = False
        """Whether it was listed once."""
        self.trouble = ""
        """Why it is not up to date."""
        self.refusal = ""
        """Why the user may not read it."""

    async def fetch(self) -> None:
        """List the objects; a refusal for lack of rights is remembered, other errors are raised."""
        scope = self._scope
        try:
            listed = await self._client.list(scope.resource, scope.namespace, labels=scope.labels)
        except StatusError as error:
            if error.code != 403:
                raise
            self.refusal = error.message or "forbidden"
            self._changed()
            return
        # A dictionary that the view may be reading is replaced, not emptied.
        self.found = {object_key(each): self._keep(each) for each in listed.items}
        self._version = listed.version
        self.is_ready = True
        self.refusal = ""
        self._changed()

    async def follow(self) -> NoReturn:
        """Keep the objects up to date until cancelled."""
        while True:
            try:
                await self._follow_once()
            except Unreachable as error:
                await self._wait(str(error))
            except StatusError as error:
                if error.code == 410:
                    self._version = ""
                elif error.code == 403:
                    # The user may list but not watch.
                    self._version = ""
                    await self._clock.sleep(POLL_SECONDS)
                elif error.code in (401, 429) or error.code >= 500:
                    await self._wait(error.message)
                else:
                    raise

    async def _wait(self, trouble: str) -> None:
        self.trouble = trouble
        self._changed()
        await self._clock.sleep(RETRY_SECONDS)

    async def _follow_once(self) -> None:
        if not self._version:
            await self.fetch()
        if self.refusal:
            self.trouble = ""
            await self._clock.sleep(REFUSED_SECONDS)
            self._version = ""
            await self.fetch()
            return
        scope = self._scope
        async with self._client.watch(
            scope.resource, scope.namespace, version=self._version, labels=scope.labels
        ) as events:
            if self.trouble:
                self.trouble = ""
                self._changed()
            async for event in events:
                self._version = event.version or self._version
                if event.type == "BOOKMARK":
                    continue
                obj = event.object
                if event.type == "DELETED":
                    self.found.pop(object_key(obj), None)
                else:
                    self.found[object_key(obj)] = self._keep(obj)
                self._changed()
        # A server that ends watches at once must not be asked without a pause.
        await self._clock.sleep(RETRY_SECONDS)


def object_key(obj: Any) -> str:
    """Return NAMESPACE/NAME, or NAME if there is no namespace."""
    namespace = obj.metadata.namespace
    return f"{namespace}/{obj.metadata.name}" if namespace else str(obj.metadata.name)
