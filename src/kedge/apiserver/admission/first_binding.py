"""FirstBinding: policies are loaded when there is a binding, because most clusters have none."""

from collections.abc import Callable
from typing import Generic, TypeVar

from kedge.apiserver.watchcache import ResourceCache

Policies = TypeVar("Policies")


class FirstBinding(Generic[Policies]):
    """The policies of one sort. Loading them imports CEL, which takes a tenth of the server's
    start."""

    def __init__(self, bindings: ResourceCache, load: Callable[[], Policies]) -> None:
        self._bindings = bindings
        self._load = load
        self._loaded: Policies | None = None

    def get(self) -> Policies | None:
        """Return the policies; None if there has been no binding yet."""
        if self._loaded is None and len(self._bindings):
            self._loaded = self._load()
        return self._loaded
