"""Keys to work on, in turns of their namespaces: one tenant with much to do delays no other."""

from collections.abc import Iterator

from kedge.client.informer import Key


class FairQueue:
    """Each key is in it at most once."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Key, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def __contains__(self, key: Key) -> bool:
        return key in self._of.get(key.namespace, ())

    def __iter__(self) -> Iterator[Key]:
        return (key for keys in self._of.values() for key in keys)

    def has_any_of(self, namespace: str) -> bool:
        return namespace in self._of

    def add(self, key: Key) -> None:
        self._of.setdefault(key.namespace, {})[key] = None

    def discard(self, key: Key) -> None:
        keys = self._of.get(key.namespace, {})
        keys.pop(key, None)
        if not keys:
            self._of.pop(key.namespace, None)

    def pop(self) -> Key:
        """Remove and return the oldest key of the namespace whose turn it is."""
        namespace = next(iter(self._of))
        keys = self._of.pop(namespace)
        key = next(iter(keys))
        del keys[key]
        if keys:
            self._of[namespace] = keys
        return key
