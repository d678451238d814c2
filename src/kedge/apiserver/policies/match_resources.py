"""MatchResources: which requests a policy or a binding is about."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kedge.api.catalog import Catalog
from kedge.api.resource import Resource
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.request import stored
from kedge.apiserver.webhooks.configuration import WebhookRule, webhook_rule
from kedge.apiserver.webhooks.dispatch import NamespaceLabels
from kedge.apiserver.webhooks.review import ReviewSubject
from kedge.machinery.errors import not_found
from kedge.machinery.selectors import LabelRequirements, labels_from_object


class NamedRule(NamedTuple):
    """A rule, and the names of objects to which it is limited."""

    rule: WebhookRule
    names: frozenset[str]

    def matches(self, about: ReviewSubject, view: Resource[Any]) -> bool:
        if self.names and about.name not in self.names:
            return False
        return self.rule.matches(about.operation, view, about.subresource)


@dataclass(frozen=True, slots=True)
class MatchResources:
    """The requests that a policy or binding is about."""

    rules: tuple[NamedRule, ...]
    excluded: tuple[NamedRule, ...]
    any_version: bool
    """Whether a request in another version of a matching resource counts too."""
    namespaces: LabelRequirements
    objects: LabelRequirements

    def view(
        self,
        attempt: Attempt,
        about: ReviewSubject,
        catalog: Catalog,
        namespace_labels: NamespaceLabels,
    ) -> Resource[Any] | None:
        """Return the resource in whose version the policy wants the object; None for no match."""
        if not _in_objects(self.objects, attempt):
            return None
        if self._matched(self.excluded, about, catalog) is not None:
            return None
        found = about.resource if not self.rules else self._matched(self.rules, about, catalog)
        if found is None or not _in_namespaces(self.namespaces, attempt, about, namespace_labels):
            return None
        return found

    def _matched(
        self, rules: Iterable[NamedRule], about: ReviewSubject, catalog: Catalog
    ) -> Resource[Any] | None:
        for rule in rules:
            if rule.matches(about, about.resource):
                return about.resource
        if not self.any_version or not rules:
            return None
        for view in _equivalents(about, catalog):
            if any(rule.matches(about, view) for rule in rules):
                return view
        return None


def match_resources(written: Mapping[str, Any] | None) -> MatchResources:
    """Return the compiled form; absent constraints match everything."""
    written = written or {}
    return MatchResources(
        rules=tuple(map(_named_rule, written.get("resourceRules") or ())),
        excluded=tuple(map(_named_rule, written.get("excludeResourceRules") or ())),
        any_version=written.get("matchPolicy", "Equivalent") == "Equivalent",
        namespaces=labels_from_object(written.get("namespaceSelector") or {}),
        objects=labels_from_object(written.get("objectSelector") or {}),
    )


def _named_rule(written: Mapping[str, Any]) -> NamedRule:
    return NamedRule(webhook_rule(written), frozenset(written.get("resourceNames") or ()))


def _equivalents(about: ReviewSubject, catalog: Catalog) -> list[Resource[Any]]:
    home = stored(about.resource).registry
    return [
        each
        for each in catalog
        if each is not about.resource
        and stored(each).registry == home
        and "get" in each.verbs
        and (not about.subresource or each.subresource(about.subresource) is not None)
    ]


def _in_objects(selector: LabelRequirements, attempt: Attempt) -> bool:
    if selector.empty:
        return True
    objects = (attempt.object, attempt.old)
    return any(obj is not None and selector.matches(obj.metadata.labels) for obj in objects)


def _in_namespaces(
    selector: LabelRequirements,
    attempt: Attempt,
    about: ReviewSubject,
    namespace_labels: NamespaceLabels,
) -> bool:
    is_namespace = about.resource.plural == "namespaces" and not about.resource.group
    if selector.empty or not about.namespace:
        return True
    if is_namespace and not about.subresource and attempt.object is not None:
        return selector.matches(attempt.object.metadata.labels)
    labels = namespace_labels(about.namespace)
    if labels is None:
        raise not_found("", "namespaces", about.namespace)
    return selector.matches(labels)
