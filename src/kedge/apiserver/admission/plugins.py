"""The admission plugins there are, in the order in which they run."""

from collections.abc import Callable, Sequence

from kedge.api.core_v1 import namespace
from kedge.apiserver.admission.chain import Plugin
from kedge.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from kedge.apiserver.watchcache import WatchCache


def _namespace_lifecycle(cache: WatchCache) -> Plugin:
    namespaces = cache.of(namespace.RESOURCE)
    return NamespaceLifecycle(lambda name: namespaces.get(namespace.RESOURCE.key("", name)))


PLUGINS: dict[str, Callable[[WatchCache], Plugin]] = {
    "NamespaceLifecycle": _namespace_lifecycle,
}


def enabled(names: Sequence[str], cache: WatchCache) -> list[Plugin]:
    """The plugins that are asked for; in which order they are named does not matter."""
    return [make(cache) for name, make in PLUGINS.items() if name in names]
