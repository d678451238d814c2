"""From path and method to resource and verb. The catalog is the routing table."""

from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec

from kedge.api.resource import Resource, Subresource
from kedge.machinery.errors import method_not_allowed, unknown_resource
from kedge.web.message import Query


class ResourcePath(msgspec.Struct, frozen=True, gc=False):
    """A path below /api or /apis, split into its segments; missing ones are empty."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    rest: str
    """The rest after the subresource, for proxies."""
    watch: bool
    """Whether the path has the old /watch/ prefix."""


_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))
PROXY = "proxy"
"""The subresource that takes every method."""
CACHED_LENGTH = 512
"""Results for longer paths are not kept, so that clients cannot fill the memory."""


def parse(path: str) -> ResourcePath | None:
    """Return the resource path below /api/v1 or /apis/GROUP/VERSION; None for any other path."""
    return _parse_cached(path) if len(path) <= CACHED_LENGTH else _parse(path)


def _parse(path: str) -> ResourcePath | None:
    segments = [unquote(segment) for segment in path.strip("/").split("/")]
    match segments:
        case ["api", version, *below]:
            group = ""
        case ["apis", group, version, *below]:
            pass
        case _:
            return None
    watch = bool(below) and below[0] == "watch"
    if watch:
        below = below[1:]
    if not below or "" in below[:3]:
        return None
    namespace = ""
    if below[0] == "namespaces" and len(below) > 2 and below[2] not in ("status", "finalize"):
        namespace, below = below[1], below[2:]
    plural, name, subresource, *rest = [*below, "", ""][: max(3, len(below))]
    return ResourcePath(group, version, plural, namespace, name, subresource, "/".join(rest), watch)


_parse_cached = lru_cache(4096)(_parse)


def verb(method: str, target: ResourcePath, query: Query) -> str:
    """Return the verb of a request, as roles spell it; 405 for methods that nothing takes."""
    match method:
        case "GET":
            if target.watch or (not target.name and query.flag("watch")):
                return "watch"
            return "get" if target.name else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case "DELETE":
            return "delete" if target.name else "deletecollection"
        case "HEAD":
            return "get" if target.name else "list"
        case "OPTIONS":
            # As upstream, only roles with the verb `*` grant it.
            return ""
        case _:
            raise method_not_allowed()


def check_method(method: str, target: ResourcePath) -> None:
    """Refuse methods that only proxies take. An unknown resource is refused before."""
    if method not in _METHODS and target.subresource != PROXY:
        raise method_not_allowed()


def check(resource: Resource[Any], target: ResourcePath, wanted: str) -> None:
    """Refuse a verb that the resource does not have under this path."""
    if target.namespace and not resource.namespaced:
        raise unknown_resource()
    if target.subresource:
        _check_subresource(resource.subresource(target.subresource), target, wanted)
        return
    if resource.namespaced and not target.namespace:
        if target.name:
            raise unknown_resource()
        if wanted not in ("list", "watch"):
            raise method_not_allowed()
    if wanted == "watch" and target.name and "get" in resource.verbs:
        return
    if wanted == "create" and target.name:
        raise method_not_allowed()
    if wanted in ("update", "patch") and not target.name:
        raise method_not_allowed()
    if wanted not in resource.verbs:
        raise method_not_allowed()


def _check_subresource(found: Subresource | None, target: ResourcePath, wanted: str) -> None:
    if found is None:
        raise unknown_resource()
    if wanted not in found.verbs and (wanted or found.name != PROXY):
        raise method_not_allowed()
