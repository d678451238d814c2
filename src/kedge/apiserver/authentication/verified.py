"""Tokens that were verified, so that their next use costs a look-up; forgotten on any change."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from kedge.apiserver.authentication.service_accounts import Verified, identity
from kedge.apiserver.watchcache import Change, ResourceCache

MOST: Final = 10_000
"""How many tokens are remembered; beyond that the one verified first has to prove itself again."""


class VerifiedTokens:
    """By the hash of the token, whom it belongs to: the tokens themselves are not kept."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, Verified] = {}
        self._by_object: dict[str, set[bytes]] = {}
        """Which tokens depend on the object with that key."""

    def __len__(self) -> int:
        return len(self._tokens)

    def follow(self, objects: Iterable[ResourceCache], secrets: ResourceCache) -> None:
        """Forget tokens as soon as an object changes in a way that could matter to them."""
        for cache in objects:
            cache.listeners.add(self._changed)
        secrets.listeners.add(self._secret_changed)

    def get(self, digest: bytes, now: datetime) -> Verified | None:
        found = self._tokens.get(digest)
        if found is None or now < found.until:
            return found
        self._forget(digest)
        return None

    def keep(self, digest: bytes, token: Verified) -> None:
        if len(self._tokens) >= MOST:
            self._forget(next(iter(self._tokens)))
        self._tokens[digest] = token
        for key in token.depends_on:
            self._by_object.setdefault(key, set()).add(digest)

    def _changed(self, change: Change | None) -> None:
        if change is None or change.item.key not in self._by_object:
            return
        # Most changes are to the status of pods and nodes, to which no token is tied.
        if change.type != "DELETED" and change.previous is not None:
            before = identity(change.previous)
            after = identity(change.item)
            if before.uid == after.uid and not after.deletion_timestamp:
                return
        self._forget_all(change.item.key)

    def _secret_changed(self, change: Change | None) -> None:
        # The token may lie in the Secret itself, so any change counts.
        if change is not None and change.item.key in self._by_object:
            self._forget_all(change.item.key)

    def _forget_all(self, key: str) -> None:
        for digest in tuple(self._by_object[key]):
            self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        token = self._tokens.pop(digest)
        for key in token.depends_on:
            others = self._by_object[key]
            others.discard(digest)
            if not others:
                del self._by_object[key]
