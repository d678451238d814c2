"""Matches requests with the rules of FlowSchemas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

ANY: Final = "*"
_ACCOUNTS: Final = "system:serviceaccount:"


class RequestDigest(NamedTuple):
    """The parts of a request that FlowSchemas look at."""

    user: str
    groups: tuple[str, ...]
    verb: str
    group: str
    resource: str
    """With its subresource, such as pods/status; empty for a path without a resource."""
    namespace: str
    path: str


class FlowSchemaRules(NamedTuple):
    """A FlowSchema, in the form in which requests are compared with it."""

    name: str
    uid: str
    level: str
    precedence: int
    distinguisher: str
    """ByUser, ByNamespace, or empty if all requests are one flow."""
    rules: Sequence[Mapping[str, Any]]

    def matches(self, digest: RequestDigest) -> bool:
        """Whether the request belongs to this schema."""
        return any(_rule_matches(rule, digest) for rule in self.rules)

    def flow_of(self, digest: RequestDigest) -> str:
        """Return the name of the flow within the schema."""
        if self.distinguisher == "ByUser":
            return digest.user
        return digest.namespace if self.distinguisher == "ByNamespace" else ""


def schema_of(document: Mapping[str, Any]) -> FlowSchemaRules:
    """Return a stored FlowSchema as rules."""
    meta, spec = document["metadata"], document.get("spec") or {}
    return FlowSchemaRules(
        name=meta["name"],
        uid=meta.get("uid", ""),
        level=(spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        precedence=spec.get("matchingPrecedence") or 1000,
        distinguisher=(spec.get("distinguisherMethod") or {}).get("type", ""),
        rules=spec.get("rules") or (),
    )


def in_order(schemas: Iterable[FlowSchemaRules]) -> list[FlowSchemaRules]:
    """Return schemas in the order in which requests are compared with them."""
    return sorted(schemas, key=lambda each: (each.precedence, each.name))


def _rule_matches(rule: Mapping[str, Any], digest: RequestDigest) -> bool:
    if not any(_is_subject(each, digest) for each in rule.get("subjects") or ()):
        return False
    if digest.resource:
        return any(_resource_matches(each, digest) for each in rule.get("resourceRules") or ())
    return any(_path_matches(each, digest) for each in rule.get("nonResourceRules") or ())


def _is_subject(subject: Mapping[str, Any], digest: RequestDigest) -> bool:
    kind = subject.get("kind")
    if kind == "User":
        return (subject.get("user") or {}).get("name") in (ANY, digest.user)
    if kind == "Group":
        name = (subject.get("group") or {}).get("name")
        return name == ANY or name in digest.groups
    if kind != "ServiceAccount" or not digest.user.startswith(_ACCOUNTS):
        return False
    account = subject.get("serviceAccount") or {}
    namespace, _, name = digest.user.removeprefix(_ACCOUNTS).partition(":")
    return account.get("namespace") == namespace and account.get("name") in (ANY, name)


def _has(values: Sequence[str] | None, wanted: str) -> bool:
    return values is not None and (wanted in values or ANY in values)


def _resource_matches(rule: Mapping[str, Any], digest: RequestDigest) -> bool:
    return (
        _has(rule.get("verbs"), digest.verb)
        and _has(rule.get("apiGroups"), digest.group)
        and _has(rule.get("resources"), digest.resource)
        and (
            _has(rule.get("namespaces"), digest.namespace)
            if digest.namespace
            else bool(rule.get("clusterScope"))
        )
    )


def _path_matches(rule: Mapping[str, Any], digest: RequestDigest) -> bool:
    return _has(rule.get("verbs"), digest.verb) and any(
        digest.path.startswith(url.rstrip(ANY)) if url.endswith(ANY) else url == digest.path
        for url in rule.get("nonResourceURLs") or ()
    )
