"""Taking in all objects of a resource: those that are there, then every change."""

from collections.abc import Callable

from kedge.apiserver.watchcache import Change, Item, ResourceCache

Take = Callable[[ResourceCache, Item], None]
"""Takes in an object as it is now; one that the cache no longer has is gone."""


def follow(objects: ResourceCache, take: Take) -> None:
    for item in objects.values():
        take(objects, item)

    def changed(change: Change | None) -> None:
        if change is not None:
            take(objects, change.item)

    objects.listeners.add(changed)


def place_of(objects: ResourceCache, item: Item) -> tuple[str, str]:
    """The namespace and name of an object; a namespace may be empty."""
    namespace, _, name = item.key.removeprefix(objects.resource.prefix).rpartition("/")
    return namespace, name
