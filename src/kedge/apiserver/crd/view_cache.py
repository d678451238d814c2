"""Keeps objects in the versions that conversion webhooks made of them."""

from collections import OrderedDict
from typing import Final, NamedTuple

from kedge.apiserver.watchcache import CHANGE_BYTES, Item

MOST_BYTES: Final = 32 << 20
"""Memory of all converted objects. Those that are not at hand are converted again."""


class ViewKey(NamedTuple):
    """One state of one object in one version, as one definition of the kind has it converted."""

    definition: int
    key: str
    revision: int
    api_version: str


class ViewCache:
    """Converted objects, the most recently used ones."""

    def __init__(self) -> None:
        self._views: OrderedDict[ViewKey, Item] = OrderedDict()
        self._bytes = 0
        self._definitions = 0

    def next_definition(self) -> int:
        """Return a number for a definition, whose objects are not those of an earlier one."""
        self._definitions += 1
        return self._definitions

    def get(self, key: ViewKey) -> Item | None:
        found = self._views.get(key)
        if found is not None:
            self._views.move_to_end(key)
        return found

    def keep(self, key: ViewKey, view: Item) -> None:
        if key not in self._views:
            self._bytes += len(view.body) + CHANGE_BYTES
        self._views[key] = view
        while self._bytes > MOST_BYTES:
            _, dropped = self._views.popitem(last=False)
            self._bytes -= len(dropped.body) + CHANGE_BYTES
