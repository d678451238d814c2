"""The parameters of a policy: the objects to which a binding refers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kedge.api.catalog import Catalog
from kedge.api.resource import Resource
from kedge.apiserver.long_work import LONG, off_loop
from kedge.apiserver.request import stored
from kedge.apiserver.watchcache import Item, Selection, WatchCache
from kedge.machinery.selectors import labels_from_object, parse_fields


class PendingParam(msgspec.Struct, frozen=True):
    """A parameter that takes long: a large one is decoded in a thread, and one of a kind whose
    versions a webhook converts is asked for, when it is needed."""

    resource: Resource[Any]
    item: Item

    async def document(self) -> dict[str, Any]:
        """Return the parameter in the version of the paramKind."""
        if self.resource.conversion is None:
            return await off_loop(len(self.item.body), _decoded, self.resource, self.item)
        found = await self.resource.conversion.items([self.item], self.resource.api_version)
        shown: dict[str, Any] = found[0].document()
        return shown


Param = dict[str, Any] | PendingParam | None


class ConfigurationError(Exception):
    """A policy or binding that cannot be used as it is."""


def param_resource(kind: Mapping[str, Any], catalog: Catalog) -> Resource[Any]:
    """Return the resource of a paramKind."""
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    found = catalog.of_kind(version, name)
    if found is None:
        group, _, short = version.rpartition("/")
        what = "failed to find resource referenced by paramKind"
        raise ConfigurationError(f"{what}: '{group}/{short}, Kind={name}'")
    return found


def params_of(
    resource: Resource[Any] | None,
    reference: Mapping[str, Any] | None,
    namespace: str,
    cache: WatchCache,
) -> Iterable[Param]:
    """Return the parameters to evaluate a policy with, one after the other.

    A policy without paramKind, and a binding without paramRef, are evaluated once, without any.
    Each is decoded when it is its turn: a selector may choose thousands of large objects.
    """
    if resource is None or reference is None:
        return [None]
    found = _found(resource, reference, _namespace(resource, reference, namespace), cache)
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        why = "no params found for policy binding with `Deny` parameterNotFoundAction"
        raise ConfigurationError(why)
    return (_document(resource, item) for item in found)


def _namespace(resource: Resource[Any], reference: Mapping[str, Any], namespace: str) -> str:
    wanted = reference.get("namespace") or ""
    if not resource.namespaced:
        if wanted:
            why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            raise ConfigurationError(why)
        return ""
    if not wanted and not namespace:
        why = (
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
        )
        raise ConfigurationError(why)
    return wanted or namespace


def _found(
    resource: Resource[Any], reference: Mapping[str, Any], namespace: str, cache: WatchCache
) -> Sequence[Item]:
    home = stored(resource)
    try:
        items = cache.of(home)
    except KeyError:
        # Nothing of this kind is stored, or its definition was deleted just now.
        kind = f"&ParamKind{{APIVersion:{resource.api_version},Kind:{resource.kind},}}"
        why = f"paramKind kind `{kind}` not yet synced to use for admission"
        raise ConfigurationError(why) from None
    if name := reference.get("name"):
        item = items.get(home.key(namespace, name))
        return [] if item is None else [item]
    try:
        labels = labels_from_object(reference.get("selector") or {})
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return items.select(Selection(home, namespace, labels, parse_fields("")))


def _document(resource: Resource[Any], item: Item) -> dict[str, Any] | PendingParam:
    if resource.conversion is not None or len(item.body) >= LONG:
        return PendingParam(resource, item)
    return _decoded(resource, item)


def _decoded(resource: Resource[Any], item: Item) -> dict[str, Any]:
    document = item.document()
    if resource.relabelling is not None:
        document = resource.relabelling.from_stored(document)
    return document | {"kind": resource.kind, "apiVersion": resource.api_version}
