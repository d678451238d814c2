"""Adoption: an owner adopts orphans that its selector matches, and releases the others."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.client.client import STRATEGIC_PATCH, Client
from kedge.controllers.pod_control import owned_by
from kedge.controllers.pod_state import is_leaving
from kedge.controllers.shared_informers import ObjectCache, controller_of
from kedge.machinery.errors import StatusError, conflict

T = TypeVar("T", bound=Object)


class Adoption(Generic[T]):
    """Adopts and releases dependents of one kind for owners of another kind."""

    def __init__(
        self,
        client: Client,
        owners: Resource[Any],
        dependents: Resource[T],
        known: ObjectCache[T],
        *,
        finalizers: Sequence[str] = (),
    ) -> None:
        """`finalizers` are put on whatever is adopted, together with its owner."""
        self._client = client
        self._owners = owners
        self._dependents = dependents
        self._known = known
        self._finalizers = list(finalizers)

    async def settle(
        self, owner: Object, selects: Callable[[T], bool], candidates: Iterable[T]
    ) -> list[T]:
        """The dependents of an owner, those included that it adopts now, without the released."""
        kept: list[T] = []
        fresh = False
        for each in candidates:
            manager = controller_of(each)
            if manager is not None:
                if manager.uid != owner.metadata.uid:
                    continue
                if selects(each):
                    kept.append(each)
                elif not is_leaving(owner):
                    await self._release(owner, each)
            elif not is_leaving(owner) and not is_leaving(each) and selects(each):
                if not fresh:
                    await self._ensure_current(owner)
                    fresh = True
                if (adopted := await self._adopt(owner, each)) is not None:
                    kept.append(adopted)
        return kept

    async def _ensure_current(self, owner: Object) -> None:
        """An owner that is gone, or leaving by now, adopts nothing."""
        meta = owner.metadata
        now = await self._client.get(self._owners, meta.name, meta.namespace)
        if now.metadata.uid != meta.uid or is_leaving(now):
            raise conflict(
                self._owners.group, self._owners.plural, meta.name, "it is being deleted"
            )

    async def _adopt(self, owner: Object, dependent: T) -> T | None:
        reference = msgspec.to_builtins(owned_by(self._owners, owner))
        return await self._patch(dependent, [reference], finalizers=self._finalizers)

    async def _release(self, owner: Object, dependent: T) -> None:
        await self._patch(dependent, [{"$patch": "delete", "uid": owner.metadata.uid}])

    async def _patch(
        self, dependent: T, references: list[dict[str, Any]], *, finalizers: Sequence[str] = ()
    ) -> T | None:
        """Change the owners of a dependent, if it is still the same; None if it is gone."""
        meta = dependent.metadata
        change: dict[str, Any] = {"uid": meta.uid, "ownerReferences": references}
        if finalizers:
            change["finalizers"] = finalizers
        try:
            changed = await self._client.patch(
                self._dependents,
                meta.name,
                {"metadata": change},
                meta.namespace,
                form=STRATEGIC_PATCH,
            )
        except StatusError as error:
            # Deleted, replaced by another object of the same name, or adopted by another owner.
            if error.code in (404, 409, 422):
                return None
            raise
        await self._known.written(changed)
        return changed
