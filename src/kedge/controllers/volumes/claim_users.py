"""ClaimUsers: the pods that use each claim."""

from collections.abc import Callable, Iterator

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.volume.claims import claims_of
from kedge.client.informer import Key
from kedge.controllers.shared_informers import ObjectCache, key_of


class ClaimUsers:
    """An index of pods by the claims in their volumes."""

    def __init__(self, pods: ObjectCache[Pod]) -> None:
        self._users: dict[Key, dict[Key, Pod]] = {}
        self._listeners: list[Callable[[Key], None]] = []
        pods.follow(self._changed)

    def listen(self, listener: Callable[[Key], None]) -> None:
        """Call a listener with each claim whose pods have changed."""
        self._listeners.append(listener)

    def of(self, claim: Key) -> list[Pod]:
        return list(self._users.get(claim, {}).values())

    def _changed(self, before: Pod | None, now: Pod | None) -> None:
        old, new = set(_keys(before)), set(_keys(now))
        if before is not None:
            for claim in old - new:
                self._remove(claim, before)
        if now is not None:
            for claim in new:
                self._users.setdefault(claim, {})[key_of(now)] = now
        for claim in old | new:
            for listener in self._listeners:
                listener(claim)

    def _remove(self, claim: Key, pod: Pod) -> None:
        users = self._users.get(claim)
        if users is None:
            return
        users.pop(key_of(pod), None)
        if not users:
            del self._users[claim]


def _keys(pod: Pod | None) -> Iterator[Key]:
    if pod is not None:
        for each in claims_of(pod):
            yield Key(pod.metadata.namespace, each.name)
