"""Mutating- and ValidatingWebhookConfigurations, compiled when they change and asked in order."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from kedge.api.catalog import Catalog
from kedge.api.resource import Resource
from kedge.apiserver.request import stored
from kedge.apiserver.watchcache import Change, ResourceCache
from kedge.apiserver.webhooks.conditions import Conditions
from kedge.machinery.selectors import LabelRequirements, labels_from_object

GROUP = "admissionregistration.k8s.io"
REVIEW_VERSIONS = ("v1", "v1beta1")
DEFAULT_SECONDS = 10
REMEMBERED = 4096
"""Kinds of requests for which the webhooks that care are remembered."""


class WebhookEndpoint(msgspec.Struct, frozen=True):
    """Where a webhook is and whom its certificate must be from."""

    url: str = ""
    """Empty if a service is meant."""
    namespace: str = ""
    service: str = ""
    path: str = ""
    port: int = 443
    ca_bundle: str = ""
    """Base64 of PEM; empty trusts what the machine trusts."""


class WebhookRule(msgspec.Struct, frozen=True):
    """One description of requests."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    """Plural and subresource, each perhaps `*`."""
    scope: str = "*"

    def matches(self, operation: str, resource: Resource[Any], subresource: str) -> bool:
        return (
            _among(operation, self.operations)
            and _among(resource.group, self.groups)
            and _among(resource.version, self.versions)
            and (self.scope == "*" or (self.scope == "Namespaced") == resource.namespaced)
            and any(
                plural in ("*", resource.plural) and part in ("*", subresource)
                for plural, part in self.resources
            )
        )


def _among(value: str, allowed: frozenset[str]) -> bool:
    return value in allowed or "*" in allowed


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook: whom it wants to hear of, and how it is called."""

    name: str
    configuration: str
    uid: str
    """Tells it from every other webhook."""
    index: int
    """Its place among all webhooks of its sort."""
    rules: tuple[WebhookRule, ...]
    any_version: bool
    """Whether a request that comes in another version of a matching resource counts too."""
    namespaces: LabelRequirements
    objects: LabelRequirements
    conditions: Conditions | None
    ignores_failure: bool
    spares_dry_runs: bool
    """Whether a dry run may be shown to it."""
    called_again: bool
    """Whether it is asked once more when later webhooks have changed what it saw."""
    seconds: int
    review: str
    """The version of AdmissionReview that it reads; empty if we know none of those."""
    client: WebhookEndpoint
    fault: str = ""
    """Why it cannot be used at all."""


class Match(NamedTuple):
    """A webhook that cares, and the resource in whose version it wants the object."""

    hook: Hook
    resource: Resource[Any]


class Hooks:
    """The webhooks of one sort as they are now."""

    def __init__(self, configurations: ResourceCache, catalog: Catalog) -> None:
        self._configurations = configurations
        self._catalog = catalog
        self._hooks: tuple[Hook, ...] | None = None
        self._known: dict[tuple[str, Resource[Any], str], tuple[Match, ...]] = {}
        self._catalog_then = catalog.changes
        configurations.listeners.add(self._follow)

    def _follow(self, change: Change | None) -> None:
        self._hooks = None
        self._known.clear()

    def matching(
        self, operation: str, resource: Resource[Any], subresource: str
    ) -> tuple[Match, ...]:
        """The webhooks whose rules speak of such requests, in the order in which they are asked."""
        if self._hooks is None:
            self._hooks = compiled(item.document() for item in self._configurations.values())
        if not self._hooks:
            return ()
        if self._catalog_then != self._catalog.changes or len(self._known) > REMEMBERED:
            self._known.clear()
            self._catalog_then = self._catalog.changes
        key = (operation, resource, subresource)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(self._matches(*key))
        return found

    def _matches(
        self, operation: str, resource: Resource[Any], subresource: str
    ) -> Iterator[Match]:
        others = [each for each in self._equivalents(resource) if _has(each, subresource)]
        for hook in self._hooks or ():
            for views in ([resource], others if hook.any_version else []):
                view = _first(hook, operation, views, subresource)
                if view is not None:
                    yield Match(hook, view)
                    break

    def _equivalents(self, resource: Resource[Any]) -> list[Resource[Any]]:
        """The other versions and groups under which the same objects are served."""
        home = stored(resource).registry
        return [
            each
            for each in self._catalog
            if each is not resource and stored(each).registry == home and "get" in each.verbs
        ]


def _first(
    hook: Hook, operation: str, views: list[Resource[Any]], subresource: str
) -> Resource[Any] | None:
    """The view that the webhook's rules speak of; an earlier rule's goes first."""
    found = (v for rule in hook.rules for v in views if rule.matches(operation, v, subresource))
    return next(found, None)


def _has(resource: Resource[Any], subresource: str) -> bool:
    return not subresource or resource.subresource(subresource) is not None


def compiled(configurations: Iterable[Mapping[str, Any]]) -> tuple[Hook, ...]:
    """All webhooks of some configurations: by the name of the configuration, then as listed."""
    hooks: list[Hook] = []
    for configuration in sorted(configurations, key=lambda each: str(each["metadata"]["name"])):
        name = configuration["metadata"]["name"]
        seen: dict[str, int] = {}
        for written in configuration.get("webhooks") or ():
            count = seen[written["name"]] = seen.get(written["name"], -1) + 1
            uid = f"{name}/{written['name']}/{count}"
            hooks.append(_hook(written, name, uid, len(hooks)))
    return tuple(hooks)


def _hook(written: Mapping[str, Any], configuration: str, uid: str, index: int) -> Hook:
    fault, selectors = "", []
    for field in ("namespaceSelector", "objectSelector"):
        try:
            selectors.append(labels_from_object(written.get(field) or {}))
        except ValueError as error:
            # Kept and refused: a webhook that is passed over lets in what it was to keep out.
            fault = f"{field}: {error}"
            selectors.append(labels_from_object({}))
    conditions = [each.get("expression", "") for each in written.get("matchConditions") or ()]
    accepted = written.get("admissionReviewVersions") or ()
    return Hook(
        name=written["name"],
        configuration=configuration,
        uid=uid,
        index=index,
        rules=tuple(map(webhook_rule, written.get("rules") or ())),
        any_version=written.get("matchPolicy", "Equivalent") == "Equivalent",
        namespaces=selectors[0],
        objects=selectors[1],
        conditions=Conditions(conditions) if conditions else None,
        ignores_failure=written.get("failurePolicy") == "Ignore",
        spares_dry_runs=written.get("sideEffects") in ("None", "NoneOnDryRun"),
        called_again=written.get("reinvocationPolicy") == "IfNeeded",
        seconds=written.get("timeoutSeconds") or DEFAULT_SECONDS,
        review=next((version for version in accepted if version in REVIEW_VERSIONS), ""),
        client=_client(written.get("clientConfig") or {}),
        fault=fault,
    )


def webhook_rule(written: Mapping[str, Any]) -> WebhookRule:
    """Return a rule with operations as a configuration or policy has it."""
    resources = [name.partition("/") for name in written.get("resources") or ()]
    return WebhookRule(
        operations=frozenset(written.get("operations") or ()),
        groups=frozenset(written.get("apiGroups") or ()),
        versions=frozenset(written.get("apiVersions") or ()),
        resources=tuple((plural, part) for plural, _, part in resources),
        scope=written.get("scope") or "*",
    )


def _client(written: Mapping[str, Any]) -> WebhookEndpoint:
    service = written.get("service")
    ca_bundle = written.get("caBundle") or ""
    if not service:
        return WebhookEndpoint(url=written.get("url") or "", ca_bundle=ca_bundle)
    return WebhookEndpoint(
        namespace=service["namespace"],
        service=service["name"],
        path=service.get("path") or "",
        port=service.get("port") or 443,
        ca_bundle=ca_bundle,
    )
